"""``flux job submit``: a jobspec from a file or stdin."""

import json
import sys

from flux_embedded.cmd.lib import values
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.optparse import Opt, command
from flux_embedded.formats.jobid import f58


def _read(path):
    if path == "-":
        return sys.stdin.read()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror}") from None


def check_json(text):
    """The object in text.

    Raises:
        CommandError: ``jobspec: invalid JSON: reason``
    """
    stripped = text.lstrip()
    if stripped[:1] not in ("{", "["):
        near = stripped.split(maxsplit=1)[0] if stripped else "end of file"
        near = f"'{near}'" if stripped else near
        raise CommandError(f"jobspec: invalid JSON: '[' or '{{' expected near {near}")
    try:
        return json.loads(text)
    except ValueError as exc:
        raise CommandError(f"jobspec: invalid JSON: {exc}") from None


@command(
    "flux-job submit",
    "[OPTIONS] [jobspec]",
    "Run job",
    [
        Opt(
            "urgency",
            "u",
            "N",
            "Set job urgency (0-31), hold=0, default=16, expedite=31",
            kind="int",
        ),
        Opt("flags", "f", "FLAGS", "Set submit comma-separated flags (e.g. debug, novalidate)"),
    ],
    args=(0, 1),
)
def submit(opts):
    try:
        flags = values.flags(opts.all("flags"))
    except CommandError as exc:
        raise CommandError(str(exc).replace("--flags: Unknown flag", "unknown flag:")) from None
    text = _read(opts.args[0] if opts.args else "-")
    payload = {"jobspec": check_json(text), "urgency": opts.get("urgency", 16), "flags": flags}
    print(f58(connect().rpc("job-ingest.submit", payload)["id"]))
    return 0
