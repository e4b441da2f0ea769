"""Jobspecs (RFC 14, RFC 25)."""

import json
import os

from flux.util import get_treedict, parse_fsd, set_treedict
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.jobspec import per_task as _per_task
from flux_embedded.formats import jobspec as _format

__all__ = ["Jobspec", "JobspecV1", "validate_jobspec"]


def validate_jobspec(jobspec, require_version=None):
    """Check a jobspec (text or object); returns (True, its Jobspec).

    Raises:
        ValueError: what is wrong with it
    """
    if isinstance(jobspec, (str, bytes)):
        jobspec = json.loads(jobspec)
    _format.validate(jobspec)
    if require_version is not None and jobspec["version"] != require_version:
        raise ValueError(f"Invalid version: expected {require_version}, got {jobspec['version']}")
    return True, JobspecV1(**jobspec)


def _positive(what, value, least=1):
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{what} must be a integer >= {least}")
    return value


#: The streams that have an option of their own, with the side they are on.
_STREAMS = {"stdin": "input", "stdout": "output", "stderr": "output"}


def _stream(name):
    """The property for where a stream of the tasks comes from or goes to: a path, or None."""
    key = f"system.shell.options.{_STREAMS[name]}.{name}"

    def get(self):
        return get_treedict(self.attributes, f"{key}.path")

    def put(self, path):
        self.setattr(f"{key}.type", "file")
        self.setattr(f"{key}.path", os.fspath(path))

    return property(get, put, doc=f"File for {name}, None for the default.")


class Jobspec:
    """A jobspec: its object in ``jobspec``, and shortcuts into it.

    Args:
        resources (list): resource vertices
        tasks (list): tasks
        attributes (dict): ``system`` and ``user`` attributes
        version (int): jobspec version
    """

    stdin, stdout, stderr = _stream("stdin"), _stream("stdout"), _stream("stderr")

    def __init__(self, resources, tasks, attributes, version):
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
            raise ValueError("duration must not be negative")
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

    @property
    def unbuffered(self):
        """Whether output is passed on at once, not by lines."""
        options = get_treedict(self.attributes, "system.shell.options", {})
        return get_treedict(options, "output.stdout.buffer.type") == "none"

    @unbuffered.setter
    def unbuffered(self, value):
        for name in ("stdout", "stderr"):
            if value:
                self.setattr_shell_option(f"output.{name}.buffer.type", "none")
            else:
                stream = get_treedict(self.attributes, f"system.shell.options.output.{name}", {})
                stream.pop("buffer", None)
        # The shell of a real Flux collects output for half a second, which would be a buffer as well.
        if value:
            self.setattr_shell_option("output.batch-timeout", 0.05)
            self.setattr_shell_option("input.batch-timeout", 0.0)

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

    def resource_walk(self):
        """Yield (parent vertex or None, vertex, how many there are in all), parents first."""

        def walk(vertices, parent, factor):
            for vertex in vertices:
                count = vertex["count"] * factor
                yield parent, vertex, count
                yield from walk(vertex.get("with", ()), vertex, count)

        return walk(self.resources, None, 1)

    def resource_counts(self):
        """How many there are in all of each type of resource, a dict."""
        counts = {}
        for _, vertex, count in self.resource_walk():
            counts[vertex["type"]] = counts.get(vertex["type"], 0) + count
        return counts

    def __str__(self):
        return self.dumps()


def _check_command(command):
    if isinstance(command, str) or not all(isinstance(word, str) for word in command):
        raise TypeError("command must be a list of strings")
    if not command:
        raise TypeError("command array cannot have length of zero")


class JobspecV1(Jobspec):
    """A jobspec of version 1."""

    def __init__(self, resources, tasks, attributes=None, version=1):
        super().__init__(resources, tasks, attributes, version)

    @classmethod
    def from_nest_command(
        cls,
        command,
        num_slots=1,
        cores_per_slot=1,
        gpus_per_slot=None,
        num_nodes=None,
        exclusive=False,
        **kwargs,
    ):
        """Make the jobspec of an instance: slots for its resources, and one broker a node.

        Args:
            command (list of str): the instance's command
            num_slots, cores_per_slot, gpus_per_slot (int): its resources
            num_nodes (int), exclusive (bool), kwargs: as for `from_command`
        """
        self = cls.from_command(
            command,
            num_tasks=num_slots,
            cores_per_task=cores_per_slot,
            gpus_per_task=gpus_per_slot,
            num_nodes=num_nodes,
            exclusive=exclusive,
            **kwargs,
        )
        self.tasks[0]["count"] = {"per_slot": 1}
        self.setattr_shell_option("per-resource.type", "node")
        return self

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
            environment (dict): environment of the tasks; default: this process's
            cwd (str): working directory of the tasks
            name (str): name of the job
            queue (str): queue

        Raises:
            ValueError: a number that cannot be
            TypeError: no command, or not a list of strings
        """
        _check_command(command)
        _positive("task count", num_tasks)
        _positive("cores per task", cores_per_task)
        if gpus_per_task:
            _positive("gpus per task", gpus_per_task, 0)
        if num_nodes is not None:
            _positive("node count", num_nodes)
        try:
            resources, count = _per_task(
                num_nodes, num_tasks, cores_per_task, gpus_per_task, exclusive
            )
        except CommandError as exc:
            raise ValueError(str(exc)) from None
        tasks = [{"command": list(command), "slot": "task", "count": count}]
        self = cls(resources, tasks, {"system": {"duration": 0}})
        if duration is not None:
            self.duration = duration
        self.environment = os.environ if environment is None else environment
        if cwd is not None:
            self.cwd = cwd
        if name is not None:
            self.setattr("system.job.name", name)
        if queue is not None:
            self.queue = queue
        return self
