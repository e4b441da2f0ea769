# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux housekeeping``: scripts that look after nodes between jobs."""

import flux
from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.job import JobID
from flux.resource import ResourceSet
from flux_embedded.cmd.lib.tables import Formats
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser

HEADINGS = {
    "id": "JOBID",
    **{f"id.{form}": "JOBID" for form in "dec hex f58 f58plain emoji kvs words dothex".split()},
    "nnodes": "NNODES",
    "allocated.nnodes": "NNODES",
    "pending.nnodes": "#ACTIVE",
    "ranks": "RANKS",
    "allocated.ranks": "RANKS",
    "pending.ranks": "ACTIVE_RANKS",
    "nodelist": "NODELIST",
    "allocated.nodelist": "NODELIST",
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


class Nodes:
    """Some ranks of the inventory."""

    def __init__(self, ranks, inventory):
        self.ranks = ranks
        self.nnodes = ranks.count()
        self.nodelist = inventory.copy_ranks(ranks).nodelist


class Row:
    """Housekeeping of one job."""

    def __init__(self, id, visit, inventory, now, wanted):
        self.id = JobID(id)
        self.t_start = visit["t_start"]
        self.runtime = max(0.0, now - self.t_start)
        for name in ("pending", "allocated"):
            ranks = IDset(visit[name])
            ranks = ranks if wanted is None else ranks.intersect(wanted)
            setattr(self, name, Nodes(ranks, inventory))
        self.ranks = self.allocated.ranks
        self.nnodes, self.nodelist = self.allocated.nnodes, self.allocated.nodelist


def list_command(args):
    layout = Formats("flux-housekeeping", FORMATS).layout(args.format, HEADINGS)
    handle = flux.Flux()
    running = handle.rpc("job-manager.stats-get").get()["housekeeping"]["running"]
    rows = []
    if running:
        # Ranks of the inventory may be more than there are brokers (fake-resources).
        inventory = ResourceSet(handle.rpc("resource.status").get()["R"])
        now = handle.rpc("broker.now", {}).get()["now"]
        wanted = _ranks(args.include, inventory.nodelist) if args.include else None
        rows = [Row(id, visit, inventory, now, wanted) for id, visit in running.items()]
    layout.print_items([row for row in rows if row.nnodes], no_header=args.no_header)


def _ranks(text, hosts):
    """The ranks that an idset or a hostlist names."""
    try:
        return IDset(text)
    except ValueError:
        names = set(Hostlist(text))
    return IDset(",".join(str(rank) for rank, host in enumerate(hosts) if host in names))


def kill_command(args):
    if not (args.targets or args.jobid or args.all):
        raise CommandError("specify at least one of --targets, --jobid, or --all")
    payload = {"signum": args.signal}
    handle = flux.Flux()
    if args.targets:
        payload["ranks"] = str(_ranks(args.targets, Hostlist(handle.attr_get("hostlist"))))
    if args.jobid:
        payload["jobid"] = args.jobid
    handle.rpc("job-manager.housekeeping-kill", payload).get()


def main(argv):
    parser = Parser("flux-housekeeping")
    one = parser.command("list", list_command, "list the scripts that run")
    one.add_argument("-i", "--include", metavar="HOSTS|RANKS", help="on these only")
    one.add_table()
    one = parser.command("kill", kill_command, "send them a signal")
    one.add_argument("-s", "--signal", metavar="N", type=int, default=15, help="its number")
    one.add_argument("-t", "--targets", metavar="HOSTS|RANKS", help="those on these")
    one.add_argument("-j", "--jobid", metavar="JOBID", type=JobID, help="those of this job")
    one.flag("--all", text="all of them")
    return parser.run(argv)
