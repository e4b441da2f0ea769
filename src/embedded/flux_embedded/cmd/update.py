"""``flux update``: change a job that is not over."""

import json

from flux_embedded.cmd.lib import jobids, pyargs
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text, warn
from flux_embedded.formats import fsd


def _attribute(key):
    """The full path of a key: below attributes.system unless it says otherwise."""
    if key.startswith("attributes."):
        return key
    if key in ("name", "job-name"):
        return "attributes.system.job.name"
    return "attributes.system." + key


def _duration(client, jobid, text):
    """A new duration; ``+`` and ``-`` count from the present one."""
    sign = text[:1] if text[:1] in "+-" else ""
    try:
        seconds = fsd.parse(text[len(sign) :])
    except ValueError:
        raise CommandError("invalid Flux standard duration") from None
    if seconds == float("inf"):
        seconds = 0.0
    if not sign:
        return seconds
    answer = client.rpc("job-info.lookup", {"id": jobid, "keys": ["jobspec"], "flags": 2})
    system = json.loads(answer["jobspec"])["attributes"]["system"]
    present = float(system.get("duration", 0))
    if present == 0:
        raise CommandError(f"duration for {jobids.f58(jobid)} is unlimited, can't update by {text}")
    if sign == "-" and seconds >= present:
        raise CommandError(
            f"current duration for {jobids.f58(jobid)} ({present:g}s) cannot be reduced by {text[1:]}"
        )
    return present + seconds if sign == "+" else present - seconds


def _updates(client, jobid, words):
    updates = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise CommandError(f"invalid update '{word}': expected KEY=VALUE")
        path = _attribute(key)
        if path == "attributes.system.duration":
            updates[path] = _duration(client, jobid, value)
            continue
        try:
            updates[path] = json.loads(value)
        except ValueError:
            updates[path] = value
    return updates


def main(argv):
    parser = pyargs.Parser(prog="flux-update")
    add = parser.add_argument
    add(
        "-n",
        "--dry-run",
        action="store_true",
        help="Do not apply any updates, just emit update payload to stdout",
    )
    add("-v", "--verbose", action="store_true", help="Print keys that were updated")
    add("--wait", action="store_true", help="accepted for compatibility")
    add("jobid", metavar="JOBID", help="Target jobid")
    add(
        "updates",
        metavar="KEY=VALUE",
        nargs="+",
        help="Requested jobspec updates in KEY=VALUE form",
    )
    args = parser.parse_args(argv)
    jobid = jobids.parse(args.jobid, jobids.INVALID)
    client = connect()
    try:
        updates = _updates(client, jobid, args.updates)
        if args.dry_run:
            print(json.dumps(updates))
            return 0
        client.rpc("job-manager.update", {"id": jobid, "updates": updates})
    except OSError as exc:
        text = error_text(exc)
        raise CommandError(text) from None
    if args.verbose:
        for key, value in updates.items():
            warn(f"flux-update: INFO: updated {key} to {value}")
    return 0
