"""Jobspecs (RFC 14, RFC 25)."""

import json
import os

from flux.util import parse_fsd, set_treedict
from flux_embedded.formats import jobspec as _format

__all__ = ["Jobspec", "JobspecV1", "validate_jobspec"]


def validate_jobspec(jobspec):
    """Check a jobspec (text or object); returns True.

    Raises:
        ValueError: what is wrong with it
    """
    if isinstance(jobspec, (str, bytes)):
        jobspec = _format.decode(jobspec if isinstance(jobspec, str) else jobspec.decode())
    _format.validate(jobspec)
    return True


def _positive(name, value, least=1):
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r}: expected an integer of at least {least}")
    return value


class Jobspec:
    """A jobspec: its object in ``jobspec``, and shortcuts into it.

    Args:
        resources (list): resource vertices
        tasks (list): tasks
        attributes (dict): ``system`` and ``user`` attributes
        version (int): jobspec version
    """

    def __init__(self, resources, tasks, version=1, attributes=None):
        self.jobspec = {
            "resources": resources,
            "tasks": tasks,
            "attributes": {} if attributes is None else attributes,
            "version": version,
        }

    def dumps(self, **kwargs):
        """The jobspec as JSON text; arguments as for `json.dumps`."""
        return json.dumps(self.jobspec, **kwargs)

    @property
    def resources(self):
        return self.jobspec["resources"]

    @property
    def tasks(self):
        return self.jobspec["tasks"]

    @property
    def attributes(self):
        return self.jobspec["attributes"]

    @property
    def version(self):
        return self.jobspec["version"]

    @property
    def _system(self):
        return self.attributes.setdefault("system", {})

    @property
    def duration(self):
        """Time limit in seconds, 0 for none; set as number or Flux Standard Duration."""
        return self._system.get("duration", 0)

    @duration.setter
    def duration(self, value):
        seconds = parse_fsd(value) if isinstance(value, str) else float(value)
        if seconds < 0:
            raise ValueError(f"duration={value!r}: expected seconds >= 0")
        self._system["duration"] = seconds

    @property
    def queue(self):
        return self._system.get("queue")

    @queue.setter
    def queue(self, name):
        self._system["queue"] = name

    @property
    def cwd(self):
        return self._system.get("cwd")

    @cwd.setter
    def cwd(self, path):
        self._system["cwd"] = os.fspath(path)

    @property
    def environment(self):
        """Environment of the tasks, a dict of str."""
        return self._system.get("environment", {})

    @environment.setter
    def environment(self, environ):
        self._system["environment"] = dict(environ)

    def setattr(self, key, value):
        """Set a dotted key under ``attributes`` (``system.`` is implied unless it is user or system)."""
        if key.split(".")[0] not in ("system", "user"):
            key = "system." + key
        set_treedict(self.attributes, key, value)

    def setattr_shell_option(self, key, value):
        """Set an option of the job shell."""
        self.setattr(f"system.shell.options.{key}", value)

    def getattr(self, key):
        """The value of a dotted key under ``attributes``; KeyError if it is not there."""
        if key.split(".")[0] not in ("system", "user"):
            key = "system." + key
        value = self.attributes
        for part in key.split("."):
            value = value[part]
        return value

    def __str__(self):
        return self.dumps()


class JobspecV1(Jobspec):
    """A jobspec of version 1."""

    def __init__(self, resources, tasks, attributes=None, version=1):
        super().__init__(resources, tasks, version, attributes)

    @classmethod
    def from_command(
        cls,
        command,
        num_tasks=1,
        cores_per_task=1,
        gpus_per_task=None,
        num_nodes=None,
        exclusive=False,
        duration=None,
        environment=None,
        cwd=None,
        name=None,
        queue=None,
    ):
        """Make a jobspec as ``flux submit`` does.

        Args:
            command (list of str): the command
            num_tasks (int): number of tasks, each in a slot of its own
            cores_per_task, gpus_per_task (int): contents of a slot
            num_nodes (int): spread the slots over so many nodes
            exclusive (bool): take the nodes whole; needs num_nodes
            duration: time limit, seconds or Flux Standard Duration
            environment (dict): environment of the tasks
            cwd (str): working directory of the tasks
            name (str): name of the job
            queue (str): queue

        Raises:
            ValueError: a number that cannot be, or no command
        """
        if not command or isinstance(command, str):
            raise ValueError("job command and arguments are missing")
        _positive("num_tasks", num_tasks)
        contents = [{"type": "core", "count": _positive("cores_per_task", cores_per_task)}]
        if gpus_per_task:
            contents.append({"type": "gpu", "count": _positive("gpus_per_task", gpus_per_task, 0)})
        count = {"per_slot": 1}
        slots = num_tasks
        if num_nodes is not None:
            _positive("num_nodes", num_nodes)
            if num_nodes > num_tasks:
                raise ValueError("node count must not be greater than task count")
            slots = -(-num_tasks // num_nodes)
            if slots * num_nodes != num_tasks:
                count = {"total": num_tasks}
        elif exclusive:
            raise ValueError("exclusive can only be set with a node count")
        vertex = {"type": "slot", "count": slots, "with": contents, "label": "task"}
        if num_nodes is not None:
            node = {"type": "node", "count": num_nodes}
            if exclusive:
                node["exclusive"] = True
            vertex = {**node, "with": [vertex]}
        tasks = [{"command": list(command), "slot": "task", "count": count}]
        self = cls([vertex], tasks, {"system": {"duration": 0}})
        if duration is not None:
            self.duration = duration
        self.environment = environment or {}
        if cwd is not None:
            self.cwd = cwd
        if name is not None:
            self.setattr("system.job.name", name)
        if queue is not None:
            self.queue = queue
        return self
