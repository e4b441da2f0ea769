# SPDX-License-Identifier: LGPL-3.0-or-later
"""The table of commands: `dispatch` runs them, and help lists them.

A new command is a function of its arguments (a list of words) that returns the exit status (None is 0), and a line
here.  Modules are imported only when their command is run: imports are most of the cost of a command.
Failure is an exception: `CommandError`, or any OSError or ValueError; `dispatch` prints it.
"""

#: command -> (``module:function``, its text in help; None: not shown), in the order of help
COMMANDS = {
    "submit": ("flux_embedded.cmd.submission:submit", "submit a job"),
    "run": ("flux_embedded.cmd.submission:run", "submit a job and show its output"),
    "alloc": ("flux_embedded.cmd.submission:alloc", "run a command in an instance in a job"),
    "batch": ("flux_embedded.cmd.submission:batch", "submit a script for an instance in a job"),
    "bulksubmit": ("flux_embedded.cmd.submission:bulksubmit", "submit a job for each of many inputs"),
    "jobs": ("flux_embedded.cmd.jobs:main", "list jobs"),
    "cancel": ("flux_embedded.cmd.cancel:main", "cancel jobs"),
    "job": ("flux_embedded.cmd.job:main", "inspect and control jobs"),
    "update": ("flux_embedded.cmd.update:main", "change an active job"),
    "resource": ("flux_embedded.cmd.resource:main", "list, drain and change resources"),
    "queue": ("flux_embedded.cmd.queue:main", "list and change queues"),
    "housekeeping": ("flux_embedded.cmd.housekeeping:main", "list and end housekeeping scripts"),
    "start": ("flux_embedded.broker.start:main", "start an instance"),
    # the command in jobspecs of instances; a broker is the whole instance here
    "broker": ("flux_embedded.broker.start:main", None),
    "simulate": ("flux.simulate.command:main", "run recorded jobs through schedulers, and compare"),
    "version": ("flux_embedded.cmd.attr:version", "print the version"),
    "config": ("flux_embedded.cmd.config:main", "print and load the configuration"),
    "python": ("flux_embedded.cmd.dispatch:python", "run Python with the Flux modules on its path"),
    "module": ("flux_embedded.cmd.module:main", "load, remove and list modules"),
    "modprobe": ("flux_embedded.cmd.modprobe:main", "load and remove modules by their dependencies"),
    "jobtap": ("flux_embedded.cmd.jobtap:main", "load, remove and list plugins of the job manager"),
    "kvs": ("flux_embedded.cmd.kvs:main", "get, put and unlink keys of the key-value store"),
    "dmesg": ("flux_embedded.cmd.dmesg:main", "print the log"),
    "getattr": ("flux_embedded.cmd.attr:getattr_", "print an attribute of the broker"),
    "setattr": ("flux_embedded.cmd.attr:setattr_", "set an attribute of the broker"),
    "R": ("flux_embedded.cmd.r:main", "make resource sets"),
}  # fmt: skip


def usage():
    shown = [f"   {name:<14} {text}\n" for name, (_, text) in COMMANDS.items() if text]
    return "Usage: flux COMMAND ARGS\n\n" + "".join(shown) + "\nSee 'flux help COMMAND'.\n"
