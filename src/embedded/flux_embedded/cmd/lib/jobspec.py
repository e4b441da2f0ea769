"""Jobspecs (RFC 25) from the resource options of the submission commands."""

import base64
import json
import stat

from flux_embedded.cmd.lib.errors import CommandError

PER_TASK = ("ntasks", "cores_per_task", "gpus_per_task")
PER_RESOURCE = ("cores", "tasks_per_node", "tasks_per_core", "gpus_per_node")


def vertex(kind, count, children=None, **more):
    """One resource vertex; ``with`` goes before a label and after ``exclusive``."""
    result = {"type": kind, "count": count}
    label = more.pop("label", None)
    result.update(more)
    if children is not None:
        result["with"] = children
    if label is not None:
        result["label"] = label
    return result


def _slot(count, cores, gpus):
    children = [vertex("core", cores)]
    if gpus:
        children.append(vertex("gpu", gpus))
    return vertex("slot", count, children, label="task")


def _on_nodes(nnodes, exclusive, slot):
    flags = {"exclusive": True} if exclusive else {}
    return [vertex("node", nnodes, [slot], **flags)]


def check_int(name, text):
    """An option's value as int; None stays None."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise CommandError(f"--{name}: invalid int value '{text}'") from None


def per_task(nnodes, ntasks, cores, gpus, exclusive):
    """Resources and task count of ``-N -n -c -g -x``."""
    per_slot = {"per_slot": 1}
    if nnodes is None:
        if exclusive:
            raise CommandError("exclusive can only be set with a node count")
        return [_slot(1 if ntasks is None else ntasks, cores, gpus)], per_slot
    if ntasks is None:
        return _on_nodes(nnodes, True, _slot(1, cores, gpus)), per_slot
    if nnodes > ntasks:
        raise CommandError("node count must not be greater than task count")
    slots = -(-ntasks // nnodes)
    count = per_slot if slots * nnodes == ntasks else {"total": ntasks}
    return _on_nodes(nnodes, exclusive, _slot(slots, cores, gpus)), count


def per_resource(nnodes, cores, gpus_per_node, exclusive):
    """Resources of ``-N --cores --gpus-per-node -x``."""
    if nnodes is None:
        if exclusive:
            raise CommandError("exclusive can only be set with a node count")
        if gpus_per_node:
            raise CommandError("gpus-per-node can only be set with a node count")
        return [_slot(1 if cores is None else cores, 1, 0)]
    if cores is None:
        return _on_nodes(nnodes, True, _slot(1, 1, gpus_per_node))
    if cores < nnodes:
        raise CommandError("number of cores cannot be less than nnodes")
    if cores % nnodes:
        raise CommandError("number of cores must be evenly divisible by node count")
    return _on_nodes(nnodes, exclusive, _slot(1, cores // nnodes, gpus_per_node))


def from_shape(text):
    """Resources of a shape (RFC 46); the slot's label defaults to ``task``."""
    from flux_embedded.formats import shape

    try:
        return shape.parse(text, default_label="task", expand=False)
    except ValueError as exc:
        raise CommandError(f"--resources-shape: {exc}") from None


def from_json(text):
    """Resources as JSON, given inline or as the name of a file."""
    if not text.lstrip().startswith(("[", "{")):
        try:
            with open(text, encoding="utf-8") as file:
                text = file.read()
        except OSError as exc:
            raise CommandError(f"--resources-json: {text}: {exc.strerror}") from None
    try:
        resources = json.loads(text)
    except ValueError as exc:
        raise CommandError(f"--resources-json: {exc}") from None
    if isinstance(resources, dict):
        resources = resources.get("resources", [resources])
    return resources


def slot_label(resources):
    """The label of the first slot, breadth first; None without one."""
    level = list(resources)
    while level:
        for item in level:
            if isinstance(item, dict) and item.get("type") == "slot":
                return item.get("label", "task")
        level = [c for i in level if isinstance(i, dict) for c in i.get("with", ())]
    return None


class Jobspec:
    """A jobspec under construction; ``spec`` is the object."""

    def __init__(self, command, resources, count, duration=0):
        label = slot_label(resources) or "task"
        self.system = {"duration": duration}
        self.attributes = {"system": self.system}
        self.spec = {
            "resources": resources,
            "tasks": [{"command": command, "slot": label, "count": count}],
            "attributes": self.attributes,
            "version": 1,
        }

    def add_file(self, name, data, perms=0o600):
        """Add a file that the job finds in its directory (RFC 37).

        Args:
            name: below the directory
            data: bytes, text, or an object that is stored as JSON
            perms: permissions of the file
        """
        encoding = "utf-8"
        if isinstance(data, bytes):
            try:
                data = data.decode("utf-8")
            except UnicodeDecodeError:
                data = base64.b64encode(data).decode("ascii")
                encoding = "base64"
        entry = {"mode": stat.S_IFREG | perms, "data": data}
        if isinstance(data, str):
            entry["encoding"] = encoding
        self.system.setdefault("files", {})[name] = entry

    @staticmethod
    def _set(where, path, value):
        keys = path.split(".")
        for key in keys[:-1]:
            step = where.get(key)
            if not isinstance(step, dict):
                step = where[key] = {}
            where = step
        where[keys[-1]] = value

    def set_attribute(self, key, value):
        """Set an attribute by the rules of ``--setattr``: below ``system`` unless it says else."""
        if key.startswith("."):
            key = key[1:]
        elif key.startswith("attributes."):
            key = key[len("attributes.") :]
        elif not key.startswith(("system.", "user.")):
            key = "system." + key
        self._set(self.attributes, key, value)

    def set_option(self, path, value):
        """Set a shell option."""
        self._set(self.system, "shell.options." + path, value)
