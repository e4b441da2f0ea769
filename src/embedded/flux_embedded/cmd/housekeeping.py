"""``flux housekeeping``."""

from flux_embedded.cmd.lib import clock, jobids, pyargs
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.outfmt import OutputFormat
from flux_embedded.formats import idset
from flux_embedded.formats.rset import RSet

HEADINGS = {
    "id": "JOBID",
    **dict.fromkeys((f"id.{form}" for form in jobids.ENCODERS), "JOBID"),
    "nnodes": "NNODES",
    "allocated.nnodes": "NNODES",
    "allocated.ranks": "RANKS",
    "allocated.nodelist": "NODELIST",
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
    "pending": (
        "flux-housekeeping format string including active nodes only",
        "{id.f58:>12} {pending.nnodes:>7} {runtime!F:>8} {pending.nodelist}",
    ),
}


class Item:
    """Housekeeping of one job."""

    def __init__(self, job, inventory, now):
        self.job = job
        self.inventory = inventory
        self.now = now

    def get(self, name):
        if name == "id" or name.startswith("id."):
            return jobids.ENCODERS[name[3:] or "f58"](self.job["id"])
        if name == "t_start":
            return self.job["t_start"]
        if name == "runtime":
            return max(0.0, self.now - self.job["t_start"])
        which = "pending" if name.startswith("pending.") else "allocated"
        ranks = idset.ids(self.job.get(which, ""))
        if name.endswith("nnodes"):
            return len(ranks)
        if name.endswith("nodelist"):
            return self.inventory.select(set(ranks)).encode_hosts()
        return idset.text(ranks)


def list_command(args):
    layout = OutputFormat.named(args.format, FORMATS, HEADINGS, "housekeeping")
    if layout is None:
        return 0
    client = connect()
    running = client.rpc("job-manager.stats-get")["housekeeping"]["running"]
    jobs = [{"id": jobids.parse(id), **visit} for id, visit in running.items()]
    # Ranks of the inventory may be more than there are brokers (fake-resources).
    inventory = RSet(client.rpc("resource.status")["R"]) if jobs else None
    if args.include and jobs:
        wanted = inventory.find(args.include)
        for job in jobs:
            for key in ("allocated", "pending"):
                ranks = idset.members(idset.decode(job.get(key, "")))
                job[key] = idset.text([r for r in ranks if r in wanted])
        jobs = [job for job in jobs if job["allocated"]]
    items = [Item(job, inventory, clock.now(client)) for job in jobs]
    return layout.show(items, Item.get, header=not args.no_header)


def kill_command(args):
    if not (args.targets or args.jobid or args.all):
        raise CommandError("specify at least one of --targets, --jobid, or --all")
    payload = {"signum": args.signal}
    if args.targets:
        payload["ranks"] = args.targets
    if args.jobid:
        payload["jobid"] = jobids.parse(args.jobid, jobids.INVALID)
    connect().rpc("job-manager.housekeeping-kill", payload)


def main(argv):
    parser = pyargs.Parser(prog="flux-housekeeping")
    lister = parser.command("list", list_command, "List running housekeeping tasks")
    lister.add_argument(
        "-i",
        "--include",
        metavar="HOSTS|RANKS",
        help="Filter output to only include targeted resources",
    )
    lister.add_no_header()
    lister.add_argument("-o", "--format", help="Specify output format")
    kill = parser.command("kill", kill_command, "Kill running housekeeping tasks")
    kill.add_argument(
        "-s",
        "--signal",
        type=int,
        default=15,
        metavar="SIGNUM",
        help="Specify signal number to send (default: 15)",
    )
    kill.add_argument("-t", "--targets", metavar="RANKS", help="Only target specific ranks")
    kill.add_argument(
        "-j", "--jobid", metavar="JOBID", help="target housekeeping tasks for this jobid"
    )
    kill.add_argument("--all", action="store_true", help="Target all active housekeeping tasks")
    return parser.run(argv)
