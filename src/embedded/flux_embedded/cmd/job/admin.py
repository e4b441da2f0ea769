"""``flux job purge``."""

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.optparse import Opt, Parser
from flux_embedded.formats import fsd


def purge(argv):
    parser = Parser(
        "flux-job purge",
        "[--age-limit=FSD] [--num-limit=N]",
        "Purge the oldest inactive jobs",
        [
            Opt("age-limit", None, "FSD", "Purge jobs that became inactive beyond age-limit."),
            Opt(
                "num-limit",
                None,
                "COUNT",
                "Purge oldest inactive jobs until COUNT are left.",
                kind="int",
            ),
            Opt("force", "f", usage="Perform the irreversible purge"),
        ],
    )
    opts = parser.parse(argv)
    payload = {"force": bool(opts.get("force"))}
    if "age-limit" in opts:
        try:
            payload["age_limit"] = fsd.parse(opts.get("age-limit"))
        except ValueError as exc:
            raise CommandError(f"age-limit: {exc}") from None
    if "num-limit" in opts:
        payload["num_limit"] = opts.get("num-limit")
    count = connect().rpc("job-manager.purge", payload)["count"]
    if opts.get("force"):
        print(f"purged {count} inactive jobs")
    else:
        print(f"use --force to purge {count} of inactive jobs")
    return 0
