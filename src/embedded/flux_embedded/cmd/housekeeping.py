"""``flux housekeeping``."""

import sys

from flux_embedded.cmd.lib import clock, formats, jobids, pyargs, values
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, UsageError
from flux_embedded.cmd.lib.outfmt import OutputFormat
from flux_embedded.cmd.lib.rset import RSet
from flux_embedded.formats import idset
from flux_embedded.formats.jobid import f58

HEADINGS = {
    "id": "JOBID",
    "id.f58": "JOBID",
    "nnodes": "NNODES",
    "allocated.nnodes": "NNODES",
    "pending.nnodes": "#ACTIVE",
    "ranks": "RANKS",
    "pending.ranks": "ACTIVE_RANKS",
    "nodelist": "NODELIST",
    "pending.nodelist": "ACTIVE_NODES",
    "runtime": "RUNTIME",
    "t_start": "T_START",
}
FORMATS = {
    "default": (
        "Default flux-housekeeping format string",
        "{id.f58:>12} {nnodes:>6} {pending.nnodes:>7} {runtime!F:>8} {nodelist}",
    ),
}


class Item:
    """Housekeeping of one job."""

    def __init__(self, job, inventory, now):
        self.job = job
        self.inventory = inventory
        self.now = now

    def get(self, name):
        if name in ("id", "id.f58"):
            return f58(self.job["id"])
        if name == "t_start":
            return self.job["t_start"]
        if name == "runtime":
            return max(0.0, self.now - self.job["t_start"])
        which = "pending" if name.startswith("pending.") else "allocated"
        ranks = list(idset.members(idset.decode(self.job.get(which, ""))))
        if name.endswith("nnodes"):
            return len(ranks)
        if name.endswith("nodelist"):
            return self.inventory.select(ranks).nodelist()
        return idset.encode(idset.from_ids(ranks))


def list_command(args):
    chosen = formats.choose(args.format, FORMATS, "FLUX_HOUSEKEEPING_LIST_FORMAT_DEFAULT")
    if chosen is None:
        return 0
    layout = OutputFormat(chosen[0], HEADINGS)
    client = connect()
    jobs = client.rpc("job-manager.housekeeping-list", {})["jobs"]
    # Ranks of the inventory may be more than there are brokers (fake-resources).
    inventory = RSet.from_dict(client.rpc("resource.status")["R"]) if jobs else None
    items = [Item(job, inventory, clock.now(client)) for job in jobs]
    text = layout.lines(items, Item.get, header=not args.no_header)
    if text:
        sys.stdout.write("\n".join(text) + "\n")
    return 0


def kill_command(args):
    signum = values.signal_number(args.signal)
    if signum is None:
        raise CommandError(f"--signal={args.signal}: not a signal")
    payload = {"signum": signum}
    if args.targets:
        payload["ranks"] = args.targets
    elif not args.all and not args.jobids:
        raise CommandError("specify at least one of jobids, --targets, or --all")
    client = connect()
    if not args.jobids:
        client.rpc("job-manager.housekeeping-kill", payload)
    for word in args.jobids:
        client.rpc("job-manager.housekeeping-kill", {**payload, "jobid": jobids.parse(word)})
    return 0


def main(argv):
    parser = pyargs.Parser(prog="flux-housekeeping")
    sub = parser.add_subparsers(dest="command", parser_class=pyargs.Parser)
    lister = sub.add_parser("list", description="List running housekeeping tasks")
    lister.add_argument("-n", "--no-header", action="store_true", help="Suppress header output")
    lister.add_argument("-o", "--format", metavar="FORMAT", help="Specify output format")
    lister.add_argument("-i", "--include", metavar="TARGETS", help="accepted for compatibility")
    lister.set_defaults(function=list_command)
    kill = sub.add_parser("kill", description="Kill running housekeeping tasks")
    kill.add_argument(
        "-s",
        "--signal",
        default="SIGTERM",
        metavar="SIG",
        help="Specify signal to send (default: SIGTERM)",
    )
    kill.add_argument("-t", "--targets", metavar="RANKS", help="Only target specific ranks")
    kill.add_argument("--all", action="store_true", help="Target all active housekeeping tasks")
    kill.add_argument("jobids", nargs="*", metavar="JOBID")
    kill.set_defaults(function=kill_command)
    args = parser.parse_args(argv)
    if args.command is None:
        raise UsageError(parser.format_usage())
    return args.function(args)
