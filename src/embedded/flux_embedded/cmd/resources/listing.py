"""``flux resource list``, ``info`` and ``R``."""

import json
import sys

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.inventory import QueueMap, SchedStatus, narrow, sched_status
from flux_embedded.cmd.lib.outfmt import OutputFormat
from flux_embedded.formats.rset import RSet

HEADINGS = {
    "state": "STATE",
    "queue": "QUEUE",
    "properties": "PROPERTIES",
    "propertiesx": "PROPERTIES",
    "nnodes": "NNODES",
    "ncores": "NCORES",
    "ngpus": "NGPUS",
    "ranks": "RANKS",
    "nodelist": "NODELIST",
    "rlist": "LIST",
}

_COLUMNS = "{state:>10} ?+:{queue:<5} ?:{propertiesx:<10.10+} {nnodes:>6} +:{ncores:>6} "
FORMATS = {
    "default": (
        "Default flux-resource list format string",
        _COLUMNS + "?+:{ngpus:>5} {nodelist}",
    ),
    "rlist": ("Format including resource list details", _COLUMNS + "+{ngpus:>5} {rlist}"),
}


class Line:
    """Ranks of one state that look alike in the columns shown."""

    def __init__(self, state, rset, properties=(), queues=(), hidden=()):
        self.state = state
        self.rset = rset
        self.all_properties = properties
        self.queues = queues
        self.hidden = hidden

    def get(self, name):
        rset = self.rset
        if name == "state":
            return self.state
        if name == "queue":
            return ",".join(self.queues)
        if name == "properties":
            return ",".join(self.all_properties)
        if name == "propertiesx":
            return ",".join(p for p in self.all_properties if p not in self.hidden)
        if name == "nodelist":
            return rset.encode_hosts()
        if name == "ranks":
            return rset.encode_ranks()
        if name == "rlist":
            return rset.short()
        return rset.count({"nnodes": "node", "ncores": "core", "ngpus": "gpu"}[name])


def make_lines(rset, state, names, queues):
    """Split the resources of a state by what the columns called names tell apart."""
    by_property = "properties" in names or "propertiesx" in names
    by_queue = "queue" in names and bool(queues)
    if not rset.have and by_queue:
        return [Line(state, rset, queues=(name,)) for name in sorted(queues.requires)]
    if not rset.have or not (by_property or by_queue):
        return [Line(state, rset)]
    hidden = set(queues.requires) | {f"+{name}" for name in queues.requires}
    groups = {}
    for rank in rset.rank_list():
        every = rset.rank_properties(rank)
        mine = queues.of(every) if by_queue else ()
        shown = tuple(p for p in every if not p.startswith("+"))
        if "properties" not in names:
            shown = tuple(p for p in shown if p not in hidden)
        groups.setdefault((mine, shown if by_property else ()), set()).add(rank)
    return [
        Line(state, rset.select(ranks), properties, mine, hidden)
        for (mine, properties), ranks in groups.items()
    ]


def split_states(text, default):
    states = [name.strip() for name in (text or default).split(",")]
    for name in states:
        if name not in SchedStatus.STATES:
            raise CommandError(f"Invalid resource state {name} specified")
    return states


def _queues(client, wanted=True):
    return QueueMap(client.rpc("config.get") or {}) if wanted else QueueMap({})


def _status(args, states):
    """(client, SchedStatus, {state: RSet cut down to what was asked for})."""
    if args.from_stdin:
        client, status = None, SchedStatus(json.load(sys.stdin))
    else:
        client = connect()
        status = sched_status(client)
    return client, status, {s: narrow(status.get(s), args, client, status.all) for s in states}


def list_resources(args):
    states = split_states(args.states, "free,allocated,down")
    layout = OutputFormat.named(args.format, FORMATS, HEADINGS, "resource", "list")
    if layout is None:
        return 0
    client, _, rsets = _status(args, states)
    names = layout.names()
    queues = _queues(client, client and ("queue" in names or "propertiesx" in names or args.queue))
    if args.queue:
        wanted = {name for text in args.queue for name in text.split(",")}
        queues.requires = {name: needs for name, needs in queues.requires.items() if name in wanted}
    lines = []
    if "state" not in names:
        # lines that nothing tells apart are one
        whole = RSet()
        for rset in rsets.values():
            whole = whole.union(rset)
        rsets = {",".join(states): whole}
    for state, rset in rsets.items():
        lines += make_lines(rset, state, names, queues)
    skip = bool(args.include) if args.skip_empty is None else args.skip_empty
    if skip:
        lines = [line for line in lines if line.rset.have]
    return layout.show(lines, Line.get, header=not args.no_header)


def _selected(args):
    _, status, rsets = _status(args, split_states(args.states, "all"))
    result = RSet()
    for rset in rsets.values():
        result = result.union(rset)
    result.expiration = status.all.expiration
    return result


def info(args):
    rset = _selected(args)
    print(f"{rset.count('node')} Nodes, {rset.count('core')} Cores, {rset.count('gpu')} GPUs")


def print_r(args):
    print(_selected(args).encode())
