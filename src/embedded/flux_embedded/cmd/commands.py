"""The commands there are: one table, from which a command line is run and help is printed.

A new command is a module with a function ``f(argv)`` that returns the exit code (None is 0), mostly made of one of options by
`flux_embedded.cmd.lib.optparse.command`, and a line here.  Modules
are imported only when their command is asked for: what a command costs is mostly what it imports.  Failure is an
exception (`flux_embedded.cmd.lib.errors`, or OSError); `flux_embedded.cmd.dispatch` prints it in the command's style.
"""

import importlib
from typing import NamedTuple, Optional


class Command(NamedTuple):
    """One line of a table.

    Args:
        where: ``module:function`` below flux_embedded.cmd; None for a command of `SUBCOMMANDS`.
        style: whose messages it has: ``builtin``, ``c`` (an executable of its own), ``py``; see
            `flux_embedded.cmd.dispatch`.
        doc: what help says of it; None: not shown.
    """

    where: Optional[str]
    style: str = "c"
    doc: Optional[str] = None

    def load(self):
        """The function, imported now."""
        module, _, function = self.where.partition(":")
        return getattr(importlib.import_module(f"flux_embedded.cmd.{module}"), function or "main")


#: heading -> {command: Command}, in the order of help
GROUPS = {
    "run and submit jobs, allocate resources": {
        "submit": Command("submit", "py", "submit a job to a Flux instance"),
        "run": Command("run", "py", "run a Flux job interactively"),
        "bulksubmit": Command("bulksubmit", "py", "submit jobs in bulk to a Flux instance"),
        "alloc": Command("alloc", "py", "allocate a new Flux instance for interactive use"),
        "batch": Command("batch", "py", "submit a batch script to Flux"),
    },
    "list and interact with jobs": {
        "jobs": Command("jobs", "py", "list jobs submitted to Flux"),
        "cancel": Command("cancel", "py", "cancel one or more jobs"),
        "job": Command(None, "c", "get job status, info, etc (see: flux help job)"),
        "proxy": Command("proxy", "builtin", "proxy connections to Flux jobs and instances"),
        "update": Command("update", "py", "update active Flux jobs"),
        "post-job-event": Command("post_event", "py"),
    },
    "get resource, queue and other instance information": {
        "resource": Command("resource", "py", "list/manipulate Flux resource status"),
        "queue": Command("queue", "py", "list and manipulate flux queues"),
        "housekeeping": Command("housekeeping", "py", "list and stop housekeeping tasks"),
        "overlay": Command("overlay", "builtin", "Show flux overlay network status"),
        "uptime": Command("uptime", "builtin", "Tell how long Flux has been up and running"),
    },
    "other useful commands": {
        "start": Command("start", "c", "bootstrap a local Flux instance"),
        # what the jobspecs of instances run; a broker is the whole instance here
        "broker": Command("start", "c"),
        "simulate": Command("simulate", "py", "run recorded jobs through schedulers, and compare"),
        "version": Command("version", "builtin", "Display flux version information"),
        "config": Command("config", "builtin", "Manage/query Flux configuration"),
        "env": Command(
            "env", "builtin", "Print the flux environment or execute a command inside it"
        ),
        "python": Command("env:python", "c", "run Python with the Flux modules on its path"),
        "module": Command("module", "c", "manage Flux broker modules"),
        "modprobe": Command("modprobe", "py", "load and remove modules by their dependencies"),
        "jobtap": Command("jobtap", "py", "list, load and remove job manager plugins"),
        "kvs": Command(None, "c", "Flux key-value store utility"),
        "dmesg": Command("dmesg", "builtin", "print or manipulate the broker log"),
        "logger": Command("logger", "c", "create an entry in the broker log"),
        "getattr": Command("attr:getattr_", "builtin", "get a broker attribute"),
        "setattr": Command("attr:setattr_", "builtin", "set a broker attribute"),
        "lsattr": Command("attr:lsattr", "builtin", "list broker attributes"),
        "event": Command("event", "c", "send and receive Flux events"),
        "exec": Command("exec_", "c", "run a command across brokers"),
        "ping": Command("ping", "c", "measure round-trip latency to a Flux service"),
        "R": Command("r", "c", "read, generate, and process resource sets"),
        "help": Command("help", "builtin"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}

#: command -> its subcommands, where each is worth a line of its own
SUBCOMMANDS = {
    "job": {
        "urgency": Command(
            "job.control:urgency", doc="Set job urgency (0-31, HOLD, EXPEDITE, DEFAULT)"
        ),
        "raise": Command("job.control:raise_exception", doc="Raise exception on one or more jobs"),
        "raiseall": Command("job.control:raiseall", doc="Raise an exception on multiple jobs."),
        "kill": Command("job.control:kill", doc="Send signal to one or more running jobs"),
        "killall": Command("job.control:killall", doc="Send signal to multiple running jobs"),
        "attach": Command("job.status:attach", doc="Interactively attach to job"),
        "status": Command(
            "job.status:status",
            doc="Wait for job(s) to complete and exit with largest exit code",
        ),
        "submit": Command("job.submit:submit", doc="Run job"),
        "id": Command("job.listing:convert", doc="Convert jobid(s) to another form"),
        "eventlog": Command("job.events:eventlog", doc="Display eventlog for a job"),
        "wait-event": Command("job.events:wait_event", doc="Wait for an event "),
        "info": Command("job.info:info", doc="Display info for a job"),
        "stats": Command("job.info:stats", doc="Get current job stats"),
        "wait": Command("job.status:wait", doc="Wait for job(s) to complete."),
        "memo": Command("job.control:memo", doc="Post an RFC 21 memo to a job"),
        "purge": Command("job.admin:purge", doc="Purge the oldest inactive jobs"),
        "timeleft": Command(
            "job.status:timeleft", doc="Find remaining runtime for job or enclosing instance"
        ),
        "taskmap": Command("job.tasks:show", doc="Utility function for working with job task maps"),
        "namespace": Command("job.listing:namespace"),
        "hostpids": Command("job.tasks:hostpids", doc="Print host:pid pairs for tasks of job"),
        "last": Command("job.listing:last", doc="List my most recently submitted job id(s)"),
        "list": Command("job.listing:list_jobs"),
        "list-inactive": Command("job.listing:list_inactive"),
        "list-ids": Command("job.listing:list_ids"),
    },
    "kvs": {
        "namespace": Command("kvs.namespace", doc="Perform KVS namespace operations"),
        "get": Command("kvs.commands:get", doc="Get value stored under key"),
        "put": Command("kvs.commands:put", doc="Store value under key"),
        "dir": Command("kvs.commands:dir_", doc="Display all keys under directory"),
        "ls": Command("kvs.commands:ls", doc="List directory"),
        "unlink": Command("kvs.commands:unlink", doc="Remove key"),
        "link": Command("kvs.commands:link", doc="Create a new name for target"),
        "readlink": Command("kvs.commands:readlink", doc="Retrieve the key a link refers to"),
        "mkdir": Command("kvs.commands:mkdir", doc="Create a directory"),
        "copy": Command("kvs.commands:copy", doc="Copy source key to destination key"),
        "move": Command("kvs.commands:move", doc="Move source key to destination key"),
        "version": Command("kvs.commands:version", doc="Display current KVS version"),
        "wait": Command("kvs.commands:wait", doc="Block until the KVS reaches version"),
        "getroot": Command("kvs.commands:getroot", doc="Get KVS root treeobj"),
        "eventlog": Command("kvs.eventlog", doc="Manipulate a KVS eventlog"),
    },
}


def find(name):
    """The function that runs a command of `COMMANDS`, and its style."""
    command = COMMANDS[name]
    if command.where is None:
        from flux_embedded.cmd.lib.optparse import Group

        table = {
            sub: (lambda argv, entry=entry: entry.load()(argv), entry.doc)
            for sub, entry in SUBCOMMANDS[name].items()
        }
        return Group(f"flux-{name}", "", more=table), command.style
    return command.load(), command.style


def overview():
    """The commands with a line of description, as help lists them."""
    text = ""
    for heading, group in GROUPS.items():
        shown = [(name, command.doc) for name, command in group.items() if command.doc]
        text += f"\n{heading}\n" + "".join(f"   {name:<18} {doc}\n" for name, doc in shown)
    return text
