# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux resource status``, and the table of ``flux resource drain``."""

import json
import sys

import flux
from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.resource import ResourceStatus, resource_status
from flux.util import AltField, Deduplicator
from flux_embedded.cmd.lib.tables import Formats, words
from flux_embedded.cmd.resource.listing import include, queue_ranks
from flux_engine.command.errors import CommandError, warn

HEADINGS = {
    "state": "STATE",
    "statex": "STATE",
    "up": "UP",
    "up.ascii": "UP",
    "color_up": "",
    "color_off": "",
    "status": "STATUS",
    "nnodes": "NNODES",
    "ranks": "RANKS",
    "nodelist": "NODELIST",
    "timestamp": "TIME",
    "reason": "REASON",
}
_STATE = "{state:>12} {color_up}{up:>2}{color_off} {nnodes:>6} "
STATUS_FORMATS = {
    "default": ("Default flux-resource status format string", _STATE + "{nodelist}"),
    "long": ("Long flux-resource status format string", _STATE + "+:{reason:<30.30} {nodelist}"),
}
_SINCE = "{timestamp!d:%b%d %R::<12} {state:<8.8} "
DRAIN_FORMATS = {
    "long": (
        "Long flux-resource drain format string",
        _SINCE + "{ranks:<8.8+} +:{reason:<30.30} {nodelist}",
    ),
    "default": (
        "Default flux-resource drain format string",
        _SINCE + "{reason:<30.30+} {nodelist}",
    ),
}
#: in the order in which they are shown
SHOWN = ("avail", "exclude", "allocated", "torpid", "housekeeping", "draining", "drained")
DEFAULT = tuple(state for state in SHOWN if state != "allocated")
STATES = (
    "all online avail offline exclude drain draining drained torpid allocated housekeeping".split()
)


class Row:
    """Ranks of one state."""

    def __init__(self, state, online, ranks, hosts, timestamp="", reason=""):
        self.statex = state
        self.online = online
        self.state = state if online else f"{state}*"
        self.status = "online" if online else "offline"
        self.up = AltField("✔", "y") if online else AltField("✗", "n")
        self.color_up = self.color_off = ""
        self.timestamp = timestamp
        self.reason = reason
        self.rank_set = IDset(str(ranks))
        self.hosts = Hostlist(str(hosts))

    nnodes = property(lambda self: len(self.hosts))
    ranks = property(lambda self: str(self.rank_set))
    nodelist = property(lambda self: str(self.hosts))

    def combine(self, other):
        """Take in the ranks of a row that looks like this one."""
        self.rank_set.add(other.rank_set)
        self.hosts.append(other.hosts)
        self.hosts.sort()


def rows_of(current, states, onlines):
    """The rows of some states, those without ranks too.

    Args:
        current (ResourceStatus): what there is
        states: names of `SHOWN`
        onlines: True, False or both: which ranks
    """
    for state in (state for state in SHOWN if state in states):
        ranks = current[state]
        if state not in ("draining", "drained"):
            for online in onlines:
                part = ranks.intersect(current["online" if online else "offline"])
                yield Row(state, online, part, current.nodelist[part])
            continue
        if not ranks and True in onlines:
            yield Row(state, True, "", "")
        for rank in ranks:
            online = rank in current.online
            if online in onlines:
                why = current.get_drain_info(rank)
                host = current.nodelist[rank]
                yield Row(state, online, rank, host, why.timestamp, why.reason)


def _states(text):
    """(states to show, whether online and offline ranks are)."""
    names = text.split(",") if text else list(DEFAULT)
    for name in names:
        if name not in STATES:
            valid = f"flux-resource: INFO: valid states: {','.join(STATES)}"
            raise CommandError(f"Invalid resource state {name} specified\n{valid}")
    if not set(names) - {"online", "offline"}:
        names += DEFAULT
    if "all" in names:
        names += SHOWN
    if "drain" in names:
        names += ("draining", "drained")
    onlines = [
        online
        for online, own, other in ((True, "online", "offline"), (False, "offline", "online"))
        if own in names or other not in names
    ]
    return names, onlines


def status(args):
    if args.states == "help":
        warn(f"flux-resource: INFO: valid states: {','.join(STATES)}")
        return
    _show(args, STATUS_FORMATS, "status", args.skip_empty or not args.states)


def drain_table(args):
    """The drained ranks, those that a job still holds apart."""
    args.states, args.from_stdin = "drain", False
    _show(args, DRAIN_FORMATS, "drain", True)


def _current(args):
    if args.from_stdin:
        return ResourceStatus(json.load(sys.stdin))
    handle = flux.Flux()
    current = resource_status(handle).get()
    if args.queue:
        config = handle.rpc("config.get").get()
        current.filter(queue_ranks(current.rset, config, words(args.queue)))
    if args.include:
        include(current, args.include)
    return current


def _show(args, formats, name, skip_empty):
    states, onlines = _states(args.states)
    layout = Formats("flux-resource", formats, name).layout(args.format, HEADINGS)
    layout = layout.copy(except_fields=["color_up", "color_off"])
    current = _current(args)
    for state in {"draining", "drained"} & set(states):
        current.torpid -= current[state]
    rows = Deduplicator(layout, ["nodelist", "ranks", "nnodes"], Row.combine)
    for row in rows_of(current, states, onlines):
        rows.append(row)
    shown = [
        row
        for row in rows
        if row.nnodes or not (skip_empty or (not row.online and "offline" not in states))
    ]
    layout.print_items(shown, no_header=args.no_header)
