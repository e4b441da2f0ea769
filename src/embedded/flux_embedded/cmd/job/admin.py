"""``flux job purge``."""

from flux_embedded.cmd.lib import jobids
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, UsageError, error_text
from flux_embedded.cmd.lib.optparse import Opt, command
from flux_embedded.formats import fsd


@command(
    "flux-job purge",
    "[--age-limit=FSD] [--num-limit=N] [ID ...]",
    "Purge the oldest inactive jobs, or those named",
    [
        Opt("age-limit", None, "FSD", "Purge jobs that became inactive beyond age-limit."),
        Opt(
            "num-limit",
            None,
            "COUNT",
            "Purge oldest inactive jobs until COUNT are left.",
            kind="int",
        ),
        Opt("force", "f", usage="Perform the irreversible purge."),
        Opt("batch", None, "COUNT", "Limit number of jobs per request (default 50).", kind="int"),
    ],
)
def purge(opts):
    force = "force" in opts
    numbers = jobids.parse_all(opts.args)
    limits = {
        "age_limit": _age(opts.get("age-limit")),
        "num_limit": max(opts.get("num-limit", -1), -1),
        "batch": opts.get("batch", 50),
        "force": force,
    }
    client = connect()
    try:
        if numbers:
            calls = [
                client.send("job-manager.purge-id", {"id": number, "force": int(force)})
                for number in numbers
            ]
            count = sum(call.get()["count"] for call in calls)
        else:
            count = _purge_range(client, limits)
    except OSError as exc:
        raise CommandError(f"purge: {error_text(exc)}") from None
    inactive = client.rpc("job-manager.stats-get")["inactive_jobs"]
    if force:
        print(f"purged {count} inactive jobs, {inactive} remaining")
    else:
        print(f"use --force to purge {count} of {inactive} inactive jobs")
    return 0


def _age(text):
    """``--age-limit`` in seconds; -1 without one."""
    if text is None:
        return -1.0
    try:
        return fsd.parse(text)
    except ValueError:
        raise UsageError(
            f"flux-job purge: purge: Invalid argument for option 'age-limit': '{text}'"
        ) from None


def _purge_range(client, limits):
    """Purge what is beyond the limits, a batch a request; returns how many."""
    count = 0
    while True:
        some = client.rpc("job-manager.purge", limits)["count"]
        count += some
        if not limits["force"] or some < limits["batch"]:
            return count
