"""Jobspecs (RFC 14, RFC 25)."""

import collections
import datetime
import errno
import json
import math
import os
from collections.abc import Mapping

from flux.job import rules
from flux.util import Fileref, del_treedict, parse_fsd, set_treedict
from flux_embedded.cmd.lib import jobspec as _forms
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.formats.dotted import lookup_path

__all__ = ["Jobspec", "JobspecV1", "jobspec_text", "validate_jobspec"]


def jobspec_text(jobspec):
    """The text of a jobspec: a Jobspec, str or bytes.

    Raises:
        OSError: it is None (EINVAL)
        TypeError: it is something else
    """
    if jobspec is None:
        raise OSError(errno.EINVAL, "jobspec must not be None/NULL")
    if isinstance(jobspec, Jobspec):
        return jobspec.dumps()
    if isinstance(jobspec, bytes):
        return jobspec.decode("utf-8", "surrogateescape")
    if not isinstance(jobspec, str):
        raise TypeError("jobspec must be a Jobspec or string (either binary or unicode)")
    return jobspec


def validate_jobspec(jobspec, require_version=None):
    """Check a jobspec (Jobspec or text); returns (True, its Jobspec), or (1, why) for JSON's null.

    Args:
        require_version (int): 1: it must be of version 1

    Raises:
        ValueError, TypeError: what is wrong with it
    """
    table = json.loads(jobspec_text(jobspec))
    if table is None:
        return 1, "Unable to parse JSON"
    rules.check_keys(rules.TOP_LEVEL_KEYS, table.keys())
    cls = JobspecV1 if 1 in (require_version, table["version"]) else Jobspec
    return True, cls(**table)


def _number(what, value, least, article="an", suffix=""):
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{what} must be {article} integer >= {least}{suffix}")


#: The streams that have an option of their own, with the side they are on.
_STREAMS = {"stdin": "input", "stdout": "output", "stderr": "output"}

#: What ``unbuffered`` sets: how long the shell of a real Flux collects input and output.
_TIMEOUTS = {"output.batch-timeout": 0.05, "input.batch-timeout": 0.0}


def _stream(name):
    """The property for where a stream of the tasks comes from or goes to: a path, or None."""
    key = f"system.shell.options.{_STREAMS[name]}.{name}"

    def get(self):
        return lookup_path(self.attributes, f"{key}.path")

    def put(self, path):
        if isinstance(path, os.PathLike):
            path = os.fspath(path)
        if not isinstance(path, str):
            raise TypeError(
                f"The path must be a string or pathlib object, got {type(path).__name__}"
            )
        self.setattr(f"{key}.type", "file")
        self.setattr(f"{key}.path", path)

    return property(get, put, doc=f"File for {name}, None for the default.")


class Jobspec:
    """A jobspec: its object in ``jobspec``, and shortcuts into it.

    Args:
        resources (list): resource vertices
        tasks (list): tasks
        attributes (dict): ``system`` and ``user`` attributes
        version (int): jobspec version

    Raises:
        ValueError, TypeError: what is wrong with one of them
    """

    top_level_keys = set(rules.TOP_LEVEL_KEYS)

    stdin, stdout, stderr = _stream("stdin"), _stream("stdout"), _stream("stderr")
    input, output, error = stdin, stdout, stderr

    def __init__(self, resources, tasks, attributes, version):
        rules.must_be("a sequence", "resources", resources)
        rules.must_be("a sequence", "tasks", tasks)
        rules.must_be("a mapping", "attributes", attributes)
        if rules.must_be("an integer", "version", version) < 1:
            raise ValueError("version must be >= 1")
        for vertex in rules.vertices(resources):
            rules.check_resource(vertex)
        for task in tasks:
            rules.check_task(task)
        rules.check_attributes(attributes)
        self.jobspec = {
            "resources": resources,
            "tasks": tasks,
            "attributes": attributes,
            "version": version,
        }

    @classmethod
    def from_yaml_stream(cls, yaml_stream):
        """Read a jobspec in YAML or JSON from a file or text; needs PyYAML."""
        import yaml

        table = yaml.safe_load(yaml_stream)
        rules.check_keys(rules.TOP_LEVEL_KEYS, table.keys())
        return cls(**table)

    @classmethod
    def from_yaml_file(cls, filename):
        """Read a jobspec from a file in YAML or JSON; needs PyYAML."""
        with open(filename, "rb") as stream:
            return cls.from_yaml_stream(stream)

    def dumps(self, **kwargs):
        """The jobspec as JSON text; arguments as for `json.dumps`."""
        return json.dumps(self.jobspec, ensure_ascii=False, **kwargs)

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
    def duration(self):
        """Time limit in seconds, 0 for none; set as number, timedelta or Flux Standard Duration."""
        return lookup_path(self.attributes, "system.duration")

    @duration.setter
    def duration(self, value):
        if isinstance(value, str):
            seconds = parse_fsd(value)
        elif isinstance(value, datetime.timedelta):
            seconds = value.total_seconds()
        elif isinstance(value, (int, float)):
            seconds = float(value)
        else:
            raise TypeError("duration must be an int, float, string, or timedelta")
        if seconds < 0:
            raise ValueError("duration must not be negative")
        if not math.isfinite(seconds):
            raise ValueError("duration must be a normal, finite value")
        self.setattr("duration", seconds)

    @property
    def queue(self):
        return lookup_path(self.attributes, "system.queue")

    @queue.setter
    def queue(self, name):
        self.setattr("queue", rules.must_be("a string", "queue", name))

    @property
    def cwd(self):
        return lookup_path(self.attributes, "system.cwd")

    @cwd.setter
    def cwd(self, path):
        if isinstance(path, os.PathLike):
            path = os.fspath(path)
        self.setattr("cwd", rules.must_be("a string", "cwd", path, ValueError))

    @property
    def environment(self):
        """Environment of the tasks, a dict of str."""
        return lookup_path(self.attributes, "system.environment")

    @environment.setter
    def environment(self, environ):
        rules.must_be("a mapping", "environment", environ, ValueError)
        self.setattr("environment", dict(environ))

    @property
    def unbuffered(self):
        """Whether output is passed on at once, not by lines."""
        where = "system.shell.options.output.{}.buffer.type"
        types = [lookup_path(self.attributes, where.format(n)) for n in ("stdout", "stderr")]
        return types == ["none", "none"]

    @unbuffered.setter
    def unbuffered(self, value):
        if not isinstance(value, bool):
            raise TypeError("unbuffered must be True or False")
        options = {f"output.{name}.buffer.type": "none" for name in ("stdout", "stderr")}
        options.update(_TIMEOUTS)
        for key, setting in options.items():
            path = f"system.shell.options.{key}"
            if value:
                self.setattr(path, setting)
            elif lookup_path(self.attributes, path) == setting:
                del_treedict(self.attributes, path, remove_empty=True)

    def add_file(self, path, data, perms=None, encoding=None):
        """Add a file that the job finds in its directory (RFC 37).

        Args:
            path (str): its name there
            data: an object that is stored as JSON; text of several lines; or the path of a file to read
            perms (int): permissions, default 0600; a file that is read keeps its own
            encoding (str): ``utf-8`` or ``base64``: data is the contents, encoded so

        Raises:
            TypeError: data is something else
        """
        if not isinstance(data, (Mapping, str)):
            raise TypeError("data must be a Mapping or string")
        if encoding is None and "\n" in data:
            encoding = "utf-8"
        file = Fileref(data, 0o600 if perms is None else perms, encoding)
        self.attributes["system"].setdefault("files", {})[path] = file

    def setattr(self, key, value):
        """Set a dotted key, ``system.``, ``user.`` or below ``system`` otherwise.

        Raises:
            TypeError: something on the way is no object
        """
        try:
            set_treedict(self.jobspec, _full(key), value)
        except TypeError as exc:
            raise TypeError(f"failed to set {_full(key)} to {value}: {exc}") from None

    def setattr_shell_option(self, key, value):
        """Set an option of the job shell."""
        self.setattr(f"system.shell.options.{key}", value)

    def getattr(self, key):
        """The value of a dotted key (see `setattr`); KeyError if it is not there."""
        value = lookup_path(self.jobspec, _full(key))
        if value is None:
            raise KeyError
        return value

    def __iter__(self):
        """Yield the resource vertices, parents first."""
        return rules.vertices(self.resources)

    def resource_walk(self):
        """Yield (parent vertex or None, vertex, how many there are in all), parents first."""

        def walk(vertices, parent, factor):
            for vertex in vertices:
                count = vertex["count"] * factor
                yield parent, vertex, count
                yield from walk(vertex.get("with", ()), vertex, count)

        return walk(self.resources, None, 1)

    def resource_counts(self):
        """How many there are in all of each type of resource, a dict; 0 of others."""
        counts = collections.defaultdict(int)
        for _, vertex, count in self.resource_walk():
            counts[vertex["type"]] += count
        return counts

    def __str__(self):
        return str(self.jobspec)

    def __repr__(self):
        return (
            f"{type(self).__name__}({self.resources}, {self.tasks}, "
            f"attributes={self.attributes}, version={self.version})"
        )


def _full(key):
    """The path of an attribute in a jobspec."""
    if key.startswith("attributes."):
        return key
    return (
        f"attributes.{key}" if key.startswith(("user.", "system.")) else f"attributes.system.{key}"
    )


def _asked(form, *arguments):
    """What one of the commands' forms of asking for resources makes; its error is a ValueError."""
    try:
        return form(*arguments)
    except CommandError as exc:
        raise ValueError(str(exc)) from None


class JobspecV1(Jobspec):
    """A jobspec of version 1."""

    def __init__(self, resources, tasks, attributes, version=1):
        if version != 1:
            raise ValueError("version must be 1")
        super().__init__(resources, tasks, attributes, version)
        rules.check_v1(resources, tasks, attributes)

    @classmethod
    def _of(cls, command, resources, task_count, options):
        """The jobspec of a command on some resources, with options as for `from_command`."""
        tasks = [{"command": command, "slot": "task", "count": task_count}]
        self = cls(resources, tasks, {"system": {"duration": 0}})
        for name in ("duration", "cwd", "queue", "input", "output", "error"):
            value = options.get(name)
            if value is not None and not (name in ("output", "error") and value in ("none", "kvs")):
                setattr(self, name, value)
        environment = options.get("environment")
        self.environment = os.environ if environment is None else environment
        for name, option in (("env_expand", "env-expand"), ("rlimits", "rlimit")):
            if options.get(name) is not None:
                rules.must_be("a mapping", name, options[name], ValueError)
                self.setattr_shell_option(option, options[name])
        for name, key in (("name", "job.name"), ("bank", "bank")):
            if options.get(name) is not None:
                self.setattr(key, options[name])
        if options.get("label_io"):
            for name in ("stdout", "stderr"):
                if getattr(self, name) is not None:
                    self.setattr_shell_option(f"output.{name}.label", True)
        if options.get("unbuffered"):
            self.unbuffered = True
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
        env_expand=None,
        cwd=None,
        rlimits=None,
        name=None,
        input=None,
        output=None,
        error=None,
        label_io=False,
        unbuffered=False,
        queue=None,
        bank=None,
    ):
        """Make a jobspec as ``flux submit`` does.

        Args:
            command (list of str): the command
            num_tasks (int): number of tasks, each in a slot of its own
            cores_per_task, gpus_per_task (int): contents of a slot
            num_nodes (int): spread the slots over so many nodes
            exclusive (bool): take the nodes whole; needs num_nodes
            duration: time limit, seconds, timedelta or Flux Standard Duration
            environment (dict): environment of the tasks; default: this process's
            env_expand (dict): variables whose values have ``{{...}}`` to be replaced when the job starts
            cwd (str): working directory of the tasks
            rlimits (dict): resource limits, -1 for none
            name (str): name of the job
            input, output, error (str): files for the streams of the tasks
            label_io (bool): lines in those files begin with the task's number
            unbuffered (bool): pass output on at once
            queue (str): queue
            bank (str): bank

        Raises:
            ValueError: a number that cannot be
            TypeError: no command, or not a list of strings
        """
        options = {key: value for key, value in locals().items() if key not in ("cls", "command")}
        _number("task count", num_tasks, 1, "a")
        _number("cores per task", cores_per_task, 1)
        if gpus_per_task is not None:
            _number("gpus per task", gpus_per_task, 0)
        if num_nodes is not None:
            _number("node count", num_nodes, 1, suffix=" (if set)")
        asked = (num_nodes, num_tasks, cores_per_task, gpus_per_task, exclusive)
        return cls._of(command, *_asked(_forms.per_task, *asked), options)

    @classmethod
    def per_resource(
        cls,
        command,
        ncores=None,
        nnodes=None,
        per_resource_type=None,
        per_resource_count=None,
        gpus_per_node=None,
        exclusive=False,
        **kwargs,
    ):
        """Make a jobspec from numbers of nodes and cores, and of tasks on each of them.

        Args:
            command (list of str): the command
            ncores, nnodes (int): how many in all; nnodes needs ncores or exclusive
            per_resource_type (str): ``node`` or ``core``: tasks are counted on each of these
            per_resource_count (int): tasks on each of them
            gpus_per_node (int): GPUs on each node
            exclusive (bool): take the nodes whole
            kwargs: as for `from_command`

        Raises:
            ValueError: numbers that do not fit together
        """
        if per_resource_type is None and per_resource_count is not None:
            raise ValueError("must specify a per_resource_type with per_resource_count")
        if per_resource_type is not None:
            if per_resource_count is None:
                raise ValueError("must specify a per_resource_count with per_resource_type")
            rules.must_be("a string", "per_resource_type", per_resource_type, ValueError)
            if per_resource_type not in ("node", "core"):
                raise ValueError(f"Invalid per_resource_type='{per_resource_type}' specified")
            rules.must_be("an integer", "per_resource_count", per_resource_count, ValueError)
            if per_resource_count < 1:
                raise ValueError("per_resource_count must be >= 1")
        if ncores is not None:
            _number("ncores", ncores, 1)
        if gpus_per_node is not None:
            _number("gpus_per_node", gpus_per_node, 0)
            if not nnodes:
                raise ValueError("gpus_per_node must be specified with nnodes")
        if nnodes is not None:
            _number("nnodes", nnodes, 1)
            if ncores is None and not exclusive:
                raise ValueError("Specifying nnodes also requires ncores or exclusive")
        elif ncores is None and not exclusive:
            raise ValueError("must specify node or core count with per_resource")
        resources = _asked(_forms.per_resource, nnodes, ncores, gpus_per_node, exclusive)
        self = cls._of(command, resources, {"per_slot": 1}, kwargs)
        if per_resource_type is not None:
            counted = {"type": per_resource_type, "count": per_resource_count}
            self.setattr_shell_option("per-resource", counted)
        return self

    @classmethod
    def from_nest_command(
        cls,
        command,
        num_slots=1,
        cores_per_slot=1,
        gpus_per_slot=None,
        num_nodes=None,
        broker_opts=None,
        exclusive=False,
        conf=None,
        **kwargs,
    ):
        """Make the jobspec of an instance: slots for its resources, and one broker a node.

        Args:
            command (list of str): the instance's command
            num_slots, cores_per_slot, gpus_per_slot (int): its resources
            num_nodes (int), exclusive (bool), kwargs: as for `from_command`
            broker_opts (iterable of str): options of the instance
            conf (dict): its configuration
        """
        options = list(broker_opts or ())
        if conf is not None:
            options.append("-c{{tmpdir}}/conf.json")
        self = cls.from_command(
            ["flux", "broker", *options, *command],
            num_tasks=num_slots,
            cores_per_task=cores_per_slot,
            gpus_per_task=gpus_per_slot,
            num_nodes=num_nodes,
            exclusive=exclusive,
            **kwargs,
        )
        for key, value in (
            ("per-resource.type", "node"),
            ("mpi", "none"),
            ("exit-timeout", "none"),
        ):
            self.setattr_shell_option(key, value)
        if conf is not None:
            self.add_file("conf.json", conf)
        return self

    @classmethod
    def from_batch_command(cls, script, jobname, args=None, **kwargs):
        """Make the jobspec of an instance that runs a script, as ``flux batch`` does.

        Args:
            script (str): contents of the script
            jobname (str): name of the job
            args (iterable of str): arguments of the script
            kwargs: as for `from_nest_command`

        Raises:
            ValueError: the script does not begin with ``#!``
        """
        if not script.startswith("#!"):
            raise ValueError(f"{jobname} does not appear to start with '#!'")
        command = ["{{tmpdir}}/script", *(args or ())]
        self = cls.from_nest_command(command, name=jobname, **kwargs)
        self.add_file("script", script, perms=0o700, encoding="utf-8")
        return self
