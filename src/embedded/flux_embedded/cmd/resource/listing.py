# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux resource list``, ``info``, ``R`` and ``status``, and the list of ``flux resource drain``."""

import json
import sys

import flux
from flux.idset import IDset
from flux.queue import queue_config_fetch
from flux.resource import ResourceSet, resource_list, resource_status
from flux.util import Deduplicator
from flux_embedded.cmd.lib import Formats, RankSet, color, mark, print_table, words
from flux_engine.command.errors import CommandError

STATES = ("free", "allocated", "down", "up", "all")
_RANKS = ("nnodes", "ranks", "nodelist")
HEADINGS = {
    **{name: name.upper() for name in ("state", "queue", "properties", "ncores", "ngpus", *_RANKS)},
    "propertiesx": "PROPERTIES",
    "rlist": "LIST",
}
_COLUMNS = "{state:>10} ?+:{queue:<5} ?:{propertiesx:<10.10+} {nnodes:>6} +:{ncores:>6} "
FORMATS = {
    "default": ("Default flux-resource list format string", _COLUMNS + "?+:{ngpus:>5} {nodelist}"),
    "rlist": ("Format including resource list details", _COLUMNS + "?:+{ngpus:>5} {rlist}"),
}
#: States of ranks, in the order of lines. Without --states all but "allocated" are shown.
RANK_STATES = ("avail", "exclude", "allocated", "torpid", "housekeeping", "draining", "drained")
SHOWN_STATES = tuple(state for state in RANK_STATES if state != "allocated")
DRAINED = ("draining", "drained")
ONLINE = {"online", "offline"}
_STATUS = "{state:>12} {color_up}{up:>2}{color_off} {nnodes:>6} "
STATUS_FORMATS = {
    "default": ("Default flux-resource status format string", _STATUS + "{nodelist}"),
    "long": ("Long flux-resource status format string", _STATUS + "+:{reason:<30.30} {nodelist}"),
}
_DRAINED = "{timestamp!d:%b%d %R::<12} {state:<8.8} "
DRAIN_FORMATS = {
    "long": (
        "Long flux-resource drain format string",
        _DRAINED + "{ranks:<8.8+} +:{reason:<30.30} {nodelist}",
    ),
    "default": (
        "Default flux-resource drain format string",
        _DRAINED + "{reason:<30.30+} {nodelist}",
    ),
}
STATUS_HEADINGS = {
    **{name: name.upper() for name in ("state", "status", "reason", "up", *_RANKS)},
    "timestamp": "TIME",
    "statex": "STATE",
    "up.ascii": "UP",
    "color_up": "",
    "color_off": "",
}


def queue_ranks(rset, queues, names):
    """Return the ranks of a resource set that belong to queues."""
    ranks = IDset()
    for name in names:
        if name not in queues:
            raise CommandError(f"--queue: {name}: no such queue")
        constraint = {"properties": queues.requires(name) or []}
        ranks.add(rset.copy_constraint(constraint).ranks)
    return ranks


def _keep_named(listed, rset, queues, args):
    """Reduce `listed`, about the ranks of `rset`, to the ranks selected by --queue and --include."""
    if args.queue:
        listed.filter(queue_ranks(rset, queues, words(args.queue)))
    if args.include:
        try:
            listed.filter(args.include)
        except (ValueError, TypeError) as exc:
            raise CommandError(f"--include: {exc}") from None


def _resources(args, default):
    """Return the requested states, the resources by state, and the queues."""
    states = (args.states or default).split(",")
    for name in states:
        if name not in STATES:
            raise CommandError(f"Invalid resource state {name} specified")
    handle = flux.Flux()
    listed, queues = resource_list(handle), queue_config_fetch(handle)
    resources, queues = listed.get(), queues.get()
    _keep_named(resources, resources.all, queues, args)
    return states, resources, queues


class Row:
    """Resources of one state with equal values in the columns shown."""

    def __init__(self, state, rset, properties=(), queues=(), hidden=()):
        self.state = state
        self.queue = ",".join(queues)
        self.properties = ",".join(properties)
        self.propertiesx = ",".join(name for name in properties if name not in hidden)
        for name in ("nnodes", "ncores", "ngpus", "rlist"):
            setattr(self, name, getattr(rset, name))
        self.ranks, self.nodelist = str(rset.ranks), str(rset.nodelist)


def rows_of(state, rset, fields, requires, hidden):
    """Split the resources of a state into rows that differ in the columns `fields`; `requires` has the properties of each queue,
    `hidden` the properties that are left out, the names of queues."""
    by_property = "properties" in fields or "propertiesx" in fields
    by_queue = "queue" in fields and bool(requires)
    if not rset.ranks and by_queue:
        return [Row(state, rset, queues=(name,)) for name in requires]
    if not rset.ranks or not (by_property or by_queue):
        return [Row(state, rset)]
    table = {name: IDset(ranks) for name, ranks in json.loads(rset.get_properties()).items()}
    groups = {}
    for rank in rset.ranks:
        have = tuple(name for name, ranks in table.items() if rank in ranks)
        queues = tuple(name for name, needs in requires.items() if by_queue and needs <= set(have))
        shown = have if "properties" in fields else tuple(n for n in have if n not in hidden)
        groups.setdefault((queues, shown if by_property else ()), []).append(rank)
    rows = []
    for (queues, properties), ranks in groups.items():
        part = rset.copy_ranks(IDset(",".join(map(str, ranks))))
        rows.append(Row(state, part, properties, queues, hidden))
    return rows


def list_resources(args):
    layout = Formats("flux-resource", FORMATS, "list").layout(args.format, HEADINGS)
    states, resources, queues = _resources(args, "free,allocated,down")
    wanted = words(args.queue)
    # A virtual queue has the nodes of its parent: it is shown only on request.
    requires = {
        name: set(queues.requires(name) or [])
        for name in queues
        if (name in wanted if wanted else not queues.parent(name))
    }
    rsets = {state: resources[state] for state in states}
    if "state" not in layout.fields:
        # Without a column for the state, the states are merged.
        whole = ResourceSet()
        for rset in rsets.values():
            whole.add(rset)
        rsets = {",".join(states): whole}
    rows = [
        row
        for state, rset in rsets.items()
        for row in rows_of(state, rset, layout.fields, requires, set(queues))
    ]
    if args.skip_empty or (args.include and not args.no_skip_empty):
        rows = [row for row in rows if row.nnodes]
    print_table(layout, rows, args)


def _selected(args):
    states, resources, _ = _resources(args, "all")
    result = ResourceSet()
    for state in states:
        result.add(resources[state])
    result.starttime = resources.all.starttime
    result.expiration = resources.all.expiration
    return result


def info(args):
    rset = _selected(args)
    if rset.nnodes or not args.include:
        print(f"{rset.nnodes} Nodes, {rset.ncores} Cores, {rset.ngpus} GPUs")


def print_r(args):
    print(_selected(args).encode())


class Line(RankSet):
    """Ranks in one state, all online or all offline; with time and reason if drained."""

    def __init__(self, status, state, ranks, is_online):
        super().__init__(ranks, status.nodelist)
        self.timestamp = self.reason = ""
        if state in DRAINED and self._ranks:
            _, self.timestamp, self.reason = status.get_drain_info(self._ranks.first())
        self.statex, self.state = state, state if is_online else f"{state}*"
        self.status = "online" if is_online else "offline"
        self.up = mark(is_online)
        self.color_up, self.color_off = color(is_online), color()


def _lines(status, states):
    """Yield the lines of some states, one for each drained rank."""
    for state in RANK_STATES:
        if not states & {state, "all"}:
            continue
        ranks = status[state]
        if state in DRAINED:
            parts = [(rank, rank in status.online) for rank in ranks] or [("", True)]
        else:
            parts = [(ranks & status.online, True), (ranks & status.offline, False)]
        for part, is_online in parts:
            yield Line(status, state, part, is_online)


def _print_lines(args, formats, subcommand, wanted, skip_empty):
    layout = Formats("flux-resource", formats, subcommand).layout(args.format, STATUS_HEADINGS)
    if not sys.stdout.isatty():
        layout = layout.copy(except_fields=["color_up", "color_off"])
    states = set(wanted.split(","))
    valid = (*RANK_STATES, *sorted(ONLINE), "all", "drain")
    for name in states - {*valid}:
        hint = f"flux-resource: INFO: valid states: {','.join(valid)}"
        raise CommandError(f"Invalid resource state {name} specified\n{hint}")
    if states <= ONLINE:
        states.update(SHOWN_STATES)
    if "drain" in states:
        states.update(DRAINED)
    handle = flux.Flux()
    asked, queues = resource_status(handle), queue_config_fetch(handle)
    status, queues = asked.get(), queues.get()
    _keep_named(status, status.rset, queues, args)
    rows = Deduplicator(layout, list(RankSet.COLUMNS), RankSet.add)
    skipped = ONLINE if skip_empty else ONLINE - states - {"online"}
    for line in _lines(status, states):
        # If only one of "online" and "offline" is named, the other is not shown.
        is_shown = line.status in (states & ONLINE or ONLINE)
        if is_shown and (line.nnodes or line.status not in skipped):
            rows.append(line)
    print_table(layout, rows, args)


def list_status(args):
    """List ranks by state."""
    wanted = args.states or ",".join(SHOWN_STATES)
    _print_lines(args, STATUS_FORMATS, "status", wanted, args.skip_empty or not args.states)


def drained(args):
    """List the drained ranks; a rank that a job still holds is ``draining``."""
    _print_lines(args, DRAIN_FORMATS, "drain", "drain", True)
