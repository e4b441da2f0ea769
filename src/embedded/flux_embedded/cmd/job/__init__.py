"""``flux job``: everything about one job, one file a group of subcommands."""

import importlib

from flux_embedded.cmd.lib.optparse import Group

OPEN_PREFIX = "flux-job"

#: subcommand -> (module, function, description)
COMMANDS = {
    "list": ("listing", "list_jobs", "List jobs"),
    "list-inactive": ("listing", "list_inactive", "List jobs from most recently inactive to least"),
    "list-ids": ("listing", "list_ids", "List job(s) by id"),
    "purge": ("admin", "purge", "Purge the oldest inactive jobs"),
    "urgency": ("control", "urgency", "Set job urgency (0-31, HOLD, EXPEDITE, DEFAULT)"),
    "cancel": ("control", "cancel", "Cancel one or more jobs"),
    "raise": ("control", "raise_exception", "Raise exception on one or more jobs"),
    "kill": ("control", "kill", "Send signal to running job"),
    "raiseall": (
        "control",
        "raiseall",
        "Raise an exception on multiple jobs based on search criteria.",
    ),
    "killall": ("control", "killall", "Send signal to multiple running jobs"),
    "cancelall": ("control", "cancelall", "Cancel multiple jobs based on search criteria."),
    "attach": ("status", "attach", "Interactively attach to job"),
    "status": ("status", "status", "Wait for job(s) to complete and exit with largest exit code"),
    "submit": ("submit", "submit", "Run job"),
    "id": ("listing", "convert", "Convert jobid(s) to another form"),
    "eventlog": ("events", "eventlog", "Display eventlog for a job"),
    "wait-event": ("events", "wait_event", "Wait for an event "),
    "info": ("info", "info", "Display info for a job"),
    "stats": ("info", "stats", "Get current job stats"),
    "wait": ("status", "wait", "Wait for job(s) to complete."),
    "memo": ("control", "memo", "Post an RFC 21 memo to a job"),
    "timeleft": ("status", "timeleft", "Find remaining runtime for job or enclosing instance"),
    "last": ("listing", "last", "List my most recently submitted job id(s)"),
}


def _lazy(module, function):
    def call(argv):
        found = importlib.import_module(f"flux_embedded.cmd.job.{module}")
        return getattr(found, function)(argv)

    return call


def main(argv):
    commands = {
        name: (_lazy(module, function), doc) for name, (module, function, doc) in COMMANDS.items()
    }
    return Group("flux-job", "", commands).run(argv)
