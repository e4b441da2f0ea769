"""Options of the submission commands, and the jobspec they make."""

import argparse
import os

from flux_embedded.cmd.lib import jobspec, values
from flux_embedded.cmd.lib.errors import CommandError, errno_text, warn
from flux_embedded.cmd.lib.pyargs import Parser
from flux_embedded.formats import idset

#: dependency scheme -> its present name
DEPRECATED_SCHEMES = {"after": "afterstart"}


class _EnvRule(argparse.Action):
    """``--env-remove`` and ``--env-file`` are rules of ``--env`` with a mark in front, in the order given."""

    def __init__(self, option_strings, dest, mark, **kwargs):
        super().__init__(option_strings, "env", **kwargs)
        self.mark = mark

    def __call__(self, parser, namespace, value, option_string=None):
        namespace.env = [*(namespace.env or ()), self.mark + value]


def make_parser(name, summary, usage="[OPTIONS...] COMMAND [ARGS...]", slots=False):
    """A parser with the options that all submission commands have.

    Args:
        name: the command's name.
        summary: what it does.
        usage: what follows the name in the usage line.
        slots: for alloc and batch: ``-n -c -g`` speak of slots, not of tasks.
    """
    parser = Parser(prog=f"flux {name}", usage=f"flux {name} {usage}", description=summary)
    add = parser.add_argument
    unit = "slot" if slots else "task"
    add("-q", "--queue", metavar="NAME", help="Submit a job to a specific named queue")
    add("-B", "--bank", metavar="BANK", help="Submit a job to a specific named bank")
    add(
        "-t",
        "--time-limit",
        metavar="MIN|FSD",
        help="Time limit in minutes when no units provided, otherwise in Flux standard duration, e.g. 30s, 2d, 1.5h",
    )
    add("-N", "--nodes", metavar="N", help="Number of nodes to allocate")
    if slots:
        add(
            "-n",
            "--nslots",
            dest="ntasks",
            metavar="N",
            help="Number of total resource slots requested",
        )
    else:
        add("-n", "--ntasks", metavar="N", help="Number of tasks to start")
    add(
        "-c",
        f"--cores-per-{unit}",
        dest="cores_per_task",
        metavar="N",
        help=f"Number of cores to allocate per {unit}",
    )
    add(
        "-g",
        f"--gpus-per-{unit}",
        dest="gpus_per_task",
        metavar="N",
        help=f"Number of GPUs to allocate per {unit}",
    )
    add("-x", "--exclusive", action="store_true", help="Request exclusive access to nodes")
    if not slots:
        add("--cores", metavar="N", help="Request a total number of cores")
        add("--tasks-per-node", metavar="N", help="Force number of tasks per node")
        add("--tasks-per-core", metavar="N", help="Force number of tasks per core")
        add("--gpus-per-node", metavar="N", help="Request a number of GPUs per node with --nodes")
    add("--resources-shape", metavar="SHAPE", help="Request resources by a shape (RFC 46)")
    add("--resources-json", metavar="FILE", help="Request resources as JSON, inline or from a file")
    add(
        "--requires",
        action="append",
        metavar="CONSTRAINT",
        help="Request resources that match a constraint (RFC 35)",
    )
    add("--urgency", metavar="N", help="Set job urgency (0-31), hold=0, default=16, expedite=31")
    add("--job-name", metavar="NAME", help="Set an optional name for job")
    add(
        "-o",
        "--setopt",
        action="append",
        metavar="OPT",
        help="Set shell option OPT. An optional value is supported with OPT=VAL (default VAL=1) (multiple use OK)",
    )
    add(
        "-S",
        "--setattr",
        action="append",
        metavar="ATTR=VAL",
        help="Set job attribute ATTR to VAL (multiple use OK)",
    )
    add(
        "--dependency",
        action="append",
        metavar="URI",
        help="Set a job dependency in the form SCHEME:VALUE (multiple use OK)",
    )
    add("--begin-time", action="append", metavar="TIME", help="Set minimum begin time for job")
    add(
        "--signal",
        metavar="SIG@TIME",
        help="Schedule delivery of signal SIG at a defined time before job expiration",
    )
    add(
        "--taskmap",
        metavar="SCHEME[:VALUE]",
        help="Select the scheme used to map task ids to nodes",
    )
    add("--cwd", metavar="DIRECTORY", help="Set job current working directory")
    add(
        "--env",
        action="append",
        metavar="RULE",
        help="Control how environment variables are exported (multiple use OK)",
    )
    add(
        "--env-remove",
        action=_EnvRule,
        mark="-",
        metavar="PATTERN",
        help="Remove environment variables matching PATTERN",
    )
    add(
        "--env-file",
        action=_EnvRule,
        mark="^",
        metavar="FILE",
        help="Read a set of environment rules from FILE",
    )
    add(
        "--rlimit",
        action="append",
        metavar="RULE",
        help="Control how resource limits are propagated (multiple use OK)",
    )
    add(
        "--input",
        metavar="FILENAME|RANKS",
        help="Redirect job stdin from FILENAME, bypassing KVS, or send it to tasks RANKS only",
    )
    add(
        "--add-file",
        action="append",
        metavar="[NAME[:PERMS]=]ARG",
        help="Add a file at path ARG, or ARG itself if it has line ends, to the job's directory "
        "(multiple use OK)",
    )
    add("--output", metavar="FILENAME", help="Redirect job stdout to FILENAME, bypassing KVS")
    add("--error", metavar="FILENAME", help="Redirect job stderr to FILENAME, bypassing KVS")
    add("-u", "--unbuffered", action="store_true", help="Disable buffering of input and output")
    add("-l", "--label-io", action="store_true", help="Add rank labels to stdout, stderr lines")
    add(
        "--flags",
        action="append",
        metavar="FLAGS",
        help="Set comma separated list of job submission flags: debug, waitable, novalidate",
    )
    add("--dry-run", action="store_true", help="Don't actually submit job, just emit jobspec")
    add("-v", "--verbose", action="count", default=0, help="Increase verbosity (multiple use OK)")
    return parser


def add_bulk_options(parser, cc=True):
    """What only ``submit`` and ``bulksubmit`` have."""
    add = parser.add_argument
    if cc:
        group = parser.add_mutually_exclusive_group()
        group.add_argument(
            "--cc",
            metavar="IDSET",
            help="Replicate job for each id in IDSET. FLUX_JOB_CC=id will be set for each job submitted",
        )
        group.add_argument("--bcc", metavar="IDSET", help="Like --cc, but FLUX_JOB_CC is not set")
    add("--quiet", action="store_true", help="Do not print jobid to stdout")
    add("--wait", action="store_true", help="Wait for all jobs to complete after submission")
    add("--wait-event", metavar="NAME", help="Wait for an event to occur after submission")
    add(
        "--watch",
        action="store_true",
        help="Watch all job output after submission (implies --wait)",
    )
    add("--progress", action="store_true", help="Show progress of job submission or completion")
    add("--jps", action="store_true", help="With --progress, show job throughput")
    add("--log", metavar="FILE", help="Print program log messages to FILE")
    add("--log-stderr", metavar="FILE", help="Separate stderr into FILE")


def add_command(parser):
    parser.add_argument("command", nargs=argparse.REMAINDER, help="Job command and arguments")


def command_of(args):
    """The words of the job's command.

    Raises:
        CommandError: there are none
    """
    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise CommandError("job command and arguments are missing")
    return words


def _resources(args):
    """(resources, task count, per-resource shell option)."""
    get = lambda name: getattr(args, name, None)  # noqa: E731
    if args.resources_shape or args.resources_json:
        names = [
            n for n in (*jobspec.PER_TASK, *jobspec.PER_RESOURCE, "nodes") if get(n) is not None
        ]
        if names or args.exclusive:
            raise CommandError(
                "a resources shape or JSON can't be used with other resource options"
            )
        if args.resources_shape:
            return jobspec.from_shape(args.resources_shape), {"per_slot": 1}, None
        return jobspec.from_json(args.resources_json), {"per_slot": 1}, None
    task = [n for n in jobspec.PER_TASK if get(n) is not None]
    resource = [n for n in jobspec.PER_RESOURCE if get(n) is not None]
    if task and resource:
        raise CommandError(
            "Per-resource options can't be used with per-task options. (See --help for details)"
        )
    number = {}
    for name in (*jobspec.PER_TASK, *jobspec.PER_RESOURCE, "nodes"):
        number[name] = jobspec.check_int(name.replace("_", "-"), get(name))
    for name, value in number.items():
        if value is not None and value < 0:
            what = {"ntasks": "task count", "nodes": "node count"}.get(name, name.replace("_", " "))
            raise CommandError(f"{what} must be a integer >= 1")
    nodes = number["nodes"]
    if nodes is not None and nodes < 1:
        raise CommandError("node count must be greater than 0")
    if not resource:
        # 0 is as good as not given
        spec, count = jobspec.per_task(
            nodes,
            number["ntasks"] or (1 if nodes is None else None),
            number["cores_per_task"] or 1,
            number["gpus_per_task"],
            args.exclusive,
        )
        return spec, count, None
    if number["tasks_per_node"] and number["tasks_per_core"]:
        raise CommandError("Do not specify both the number of tasks per node and per core")
    spec = jobspec.per_resource(nodes, number["cores"], number["gpus_per_node"], args.exclusive)
    per = None
    if number["tasks_per_node"]:
        per = {"type": "node", "count": number["tasks_per_node"]}
    elif number["tasks_per_core"]:
        per = {"type": "core", "count": number["tasks_per_core"]}
    return spec, {"per_slot": 1}, per


def stdin_ranks(text):
    """``--input`` as an idset of task ranks; None if it names a file, or nothing."""
    if text is None:
        return None
    try:
        idset.decode(text)
    except ValueError:
        return None
    return text


def _add_file(spec, text):
    """``--add-file=[NAME[:PERMS]=]ARG`` as an entry of ``files`` (RFC 14, RFC 37)."""
    name, equals, source = text.partition("=")
    perms = None
    if equals:
        name, colon, mode = name.partition(":")
        try:
            perms = int(mode, 8) if colon else None
        except ValueError:
            raise CommandError(f"--add-file={text}: invalid permissions '{mode}'") from None
    else:
        source, name = text, os.path.basename(text)
    data = source.replace("\\n", "\n")
    if "\n" in data:
        if not equals:
            raise CommandError(f"--add-file={text}: name must be supplied for file data")
    else:
        try:
            perms = os.stat(source).st_mode & 0o7777 if perms is None else perms
            with open(source, "rb") as file:
                data = file.read()
        except OSError as exc:
            raise CommandError(f"--add-file={text}: {errno_text(exc)}: '{source}'") from None
    spec.add_file(name, data, 0o600 if perms is None else perms)


def _output_options(spec, args):
    if args.input and stdin_ranks(args.input) is None:
        spec.set_option("input.stdin", {"type": "file", "path": args.input})
    for stream in ("stdout", "stderr"):
        path = args.output if stream == "stdout" else args.error
        if path not in (None, "none", "kvs"):
            option = {"type": "file", "path": path}
            if args.label_io:
                option["label"] = True
            spec.set_option("output." + stream, option)
    if args.unbuffered:
        spec.set_option("output.stdout.buffer.type", "none")
        spec.set_option("output.stderr.buffer.type", "none")
        spec.set_option("output.batch-timeout", 0.05)
        spec.set_option("input.batch-timeout", 0.0)


def _constraint(texts):
    from flux_embedded.formats import constraint_text

    whole = texts[0] if len(texts) == 1 else " ".join(f"({text})" for text in texts)
    try:
        return constraint_text.parse(whole)
    except ValueError as exc:
        raise CommandError(f"--requires={whole!r}: {exc}") from None


def build(args, command, warnings=True):
    """The :class:`Jobspec` of parsed options.

    Raises:
        CommandError: an option's value is wrong
    """
    resources, count, per = _resources(args)
    duration = 0 if args.time_limit is None else values.duration(args.time_limit)
    spec = jobspec.Jobspec(command, resources, count, duration)
    if per:
        spec.set_option("per-resource", per)
    spec.system["environment"] = values.environment(args.env)
    spec.system["cwd"] = args.cwd if args.cwd is not None else os.getcwd()
    limits = values.rlimits(args.rlimit)
    if limits:
        spec.set_option("rlimit", limits)
    dependencies = []
    for text in args.dependency or ():
        dependency = values.dependency(text)
        scheme = dependency["scheme"]
        if scheme in DEPRECATED_SCHEMES and warnings:
            warn(f"dependency scheme '{scheme}' is deprecated, use '{DEPRECATED_SCHEMES[scheme]}'")
        dependencies.append(dependency)
    for text in args.begin_time or ():
        dependencies.append({"scheme": "begin-time", "value": str(values.begin_time(text))})
    if dependencies:
        spec.system["dependencies"] = dependencies
    if args.requires is not None:
        spec.system["constraints"] = _constraint(args.requires)
    if args.job_name:
        spec.set_attribute("system.job.name", args.job_name)
    _output_options(spec, args)
    if args.taskmap:
        scheme, _, value = args.taskmap.partition(":")
        spec.set_option("taskmap", {"scheme": scheme, "value": value})
    if args.signal:
        spec.set_option("signal", values.signal_option(args.signal))
    if args.queue is not None:
        spec.system["queue"] = args.queue
    if args.bank:
        spec.system["bank"] = args.bank
    for text in args.add_file or ():
        _add_file(spec, text)
    for text in args.setopt or ():
        spec.set_option(*values.key_value(text))
    for text in args.setattr or ():
        spec.set_attribute(*values.key_value(text))
    return spec


def request(args, spec):
    """The payload of job-ingest.submit; the urgency's range is checked there."""
    payload = {"jobspec": spec, "urgency": 16, "flags": values.flags(args.flags)}
    if args.urgency is not None:
        payload["urgency"] = values.urgency(args.urgency)
    return payload
