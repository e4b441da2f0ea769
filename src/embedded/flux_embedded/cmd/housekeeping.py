# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux housekeeping``: list and end the scripts that run on nodes between jobs."""

import time

import flux
from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.job import JobID
from flux.util import Deduplicator
from flux_embedded.cmd.lib import Formats, RankSet, print_table
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser

_TIMES = "{pending.nnodes:>7} {runtime!F:>8} "
FORMATS = {
    "default": (
        "Default flux-housekeeping format string",
        "{id.f58:>12} {nnodes:>6} " + _TIMES + "{nodelist}",
    ),
    "pending": (
        "flux-housekeeping format string including active nodes only",
        "{id.f58:>12} " + _TIMES + "{pending.nodelist}",
    ),
}
_SETS = {"ranks": "RANKS", "nodelist": "NODELIST", "nnodes": "NNODES"}
HEADINGS = {
    **{f"id{form}": "JOBID" for form in ("", ".dec", ".hex", ".f58", ".f58plain", ".kvs", ".dothex")},
    "t_start": "T_START",
    "runtime": "RUNTIME",
    **_SETS,
    **{f"allocated.{name}": text for name, text in _SETS.items()},
    "pending.ranks": "ACTIVE_RANKS",
    "pending.nodelist": "ACTIVE_NODES",
    "pending.nnodes": "#ACTIVE",
}  # fmt: skip


class Row(RankSet):
    """The nodes of a job in housekeeping; `pending`: the nodes whose script has not ended."""

    def __init__(self, jobid, info, hosts, included):
        def ranks(name):
            found = IDset(info[name])
            return found if included is None else found.intersect(included)

        super().__init__(ranks("allocated"), hosts)
        self.id, self.allocated = JobID(jobid), self
        self.pending = RankSet(ranks("pending"), hosts)
        self.t_start = info["t_start"]
        self.runtime = time.time() - self.t_start

    def add(self, other):
        super().add(other)
        self.pending.add(other.pending)


def _ranks(hosts, text):
    """Return the ranks (IDset) in the value of an option, an idset or a hostlist; None without it."""
    try:
        return text and IDset(text)
    except ValueError:
        return IDset(hosts.index(text))


def list_command(args):
    layout = Formats("flux-housekeeping", FORMATS).layout(args.format, HEADINGS)
    handle = flux.Flux()
    hosts = Hostlist(handle.attr_get("hostlist"))
    included = _ranks(hosts, args.include)
    sets = [f"{prefix}{name}" for prefix in ("", "pending.") for name in RankSet.COLUMNS]
    rows = Deduplicator(layout, sets, Row.add)
    running = handle.rpc("job-manager.stats-get").get()["housekeeping"]["running"]
    for jobid, info in running.items():
        row = Row(jobid, info, hosts, included)
        if row.nnodes:
            rows.append(row)
    print_table(layout, rows, args)


def kill(args):
    if args.jobid is None and not (args.all or args.targets):
        raise CommandError("specify at least one of --targets, --jobid, or --all")
    handle = flux.Flux()
    payload = {"signum": args.signal}
    if args.jobid is not None:
        payload["jobid"] = args.jobid
    if args.targets:
        payload["ranks"] = _ranks(Hostlist(handle.attr_get("hostlist")), args.targets).encode()
    handle.rpc("job-manager.housekeeping-kill", payload).get()


def main(argv):
    parser = Parser("flux-housekeeping")
    one = parser.command("list", list_command, "list the jobs whose nodes are in housekeeping")
    one.option("-i --include=RANKS|HOSTS", "only on these")
    one.add_table()
    one = parser.command("kill", kill, "send a signal to housekeeping scripts")
    one.option("-s --signal=N", "signal number (default: 15)", type=int, default=15)
    one.option("-t --targets=RANKS|HOSTS", "only scripts on these")
    one.option("-j --jobid=JOBID", "only scripts of this job", type=JobID)
    one.option("--all", "all scripts")
    return parser.run(argv)
