"""``flux logger``: write a line to the broker's log."""

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.optparse import Opt, command
from flux_embedded.formats.levels import LEVELS


@command(
    "flux-logger",
    "[OPTIONS] message ...",
    "create a log entry",
    [
        Opt("severity", "s", "LEVEL", "Set log message severity (default: notice)"),
        Opt("appname", "n", "NAME", "Set log message appname (default: logger)"),
    ],
)
def main(opts):
    severity = opts.get("severity", "notice")
    severity = {"error": "err", "warn": "warning"}.get(severity, severity)
    if severity not in LEVELS:
        raise CommandError("invalid severity: Use emerg|alert|crit|err|warning|notice|info|debug")
    payload = {
        "level": LEVELS.index(severity),
        "name": opts.get("appname", "logger"),
        "text": " ".join(opts.args),
    }
    connect().rpc("log.append", payload)
    return 0
