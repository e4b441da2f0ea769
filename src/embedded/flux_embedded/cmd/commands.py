# SPDX-License-Identifier: LGPL-3.0-or-later
"""The table of commands, for running command lines and printing help.

A new command is a function of its arguments (a list of words) that returns the exit status (None is 0), and a line
here.  Modules are imported only when their command is run: imports are most of the cost of a command.
Failure is an exception: `CommandError`, or any OSError or ValueError; `dispatch` prints it.
"""

import importlib
import sys
from typing import NamedTuple, Optional


class Command(NamedTuple):
    """One line of the table.

    Args:
        where: ``module:function`` below flux_embedded.cmd; the function is ``main`` if there is none.
        doc: its line in help; None: not shown.
    """

    where: str
    doc: Optional[str] = None

    def load(self):
        """The function, imported now."""
        module, _, function = self.where.partition(":")
        return getattr(importlib.import_module(f"flux_embedded.cmd.{module}"), function or "main")


#: heading -> {command: Command}, in the order of help
GROUPS = {
    "run and submit jobs, allocate resources": {
        "submit": Command("submission:submit", "submit a job to a Flux instance"),
        "run": Command("submission:run", "run a Flux job interactively"),
        "alloc": Command("submission:alloc", "allocate a new Flux instance for interactive use"),
        "batch": Command("submission:batch", "submit a batch script to Flux"),
    },
    "list and interact with jobs": {
        "jobs": Command("jobs", "list jobs submitted to Flux"),
        "cancel": Command("cancel", "cancel one or more jobs"),
        "job": Command("job", "get job status, info, etc (see: flux help job)"),
        "update": Command("update", "update active Flux jobs"),
    },
    "get resource, queue and other instance information": {
        "resource": Command("resource", "list/manipulate Flux resource status"),
        "queue": Command("queue", "list and manipulate flux queues"),
        "housekeeping": Command("housekeeping", "stop housekeeping tasks"),
    },
    "other useful commands": {
        "start": Command("start", "bootstrap a local Flux instance"),
        # the command in jobspecs of instances; a broker is the whole instance here
        "broker": Command("start"),
        "simulate": Command("simulate", "run recorded jobs through schedulers, and compare"),
        "version": Command("version", "Display flux version information"),
        "config": Command("config", "Manage/query Flux configuration"),
        "python": Command("env:python", "run Python with the Flux modules on its path"),
        "module": Command("module", "manage Flux broker modules"),
        "modprobe": Command("modprobe", "load and remove modules by their dependencies"),
        "jobtap": Command("jobtap", "list, load and remove job manager plugins"),
        "kvs": Command("kvs", "get, put and unlink keys of the key-value store"),
        "dmesg": Command("dmesg", "print or manipulate the broker log"),
        "getattr": Command("attr:getattr_", "get a broker attribute"),
        "setattr": Command("attr:setattr_", "set a broker attribute"),
        "R": Command("r", "make resource sets"),
        "help": Command("commands:show_help"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}

HEAD = """\
Usage: flux [OPTIONS] COMMAND ARGS
  -h, --help             Display this message.
  -V, --version          Display command and component versions

This is the embedded instance of flux-scheduler: a subset of flux-core's
commands, in their syntax. For general Flux documentation, please visit
    https://flux-framework.readthedocs.io
"""


def usage():
    """The output of ``flux --help``."""
    text = HEAD
    for heading, group in GROUPS.items():
        shown = [(name, command.doc) for name, command in group.items() if command.doc]
        text += f"\n{heading}\n" + "".join(f"   {name:<18} {doc}\n" for name, doc in shown)
    return f"{text}\nSee 'flux help COMMAND' for more information about a specific command.\n"


def show_help(argv):
    """``flux help``: the list of commands, or one command's own help."""
    if not argv:
        sys.stdout.write(usage())
        return 0
    from flux_embedded.cmd.dispatch import run

    return run([argv[0], "--help"])
