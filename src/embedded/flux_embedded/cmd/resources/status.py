"""``flux resource status`` and the table of ``flux resource drain``."""

import sys

from flux_embedded.cmd.lib import formats
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.inventory import QueueMap
from flux_embedded.cmd.lib.outfmt import OutputFormat
from flux_embedded.cmd.lib.rset import RError, RSet
from flux_embedded.formats import idset

HEADINGS = {
    "state": "STATE",
    "statex": "STATE",
    "up": "UP",
    "up.ascii": "UP",
    "status": "STATUS",
    "nnodes": "NNODES",
    "ranks": "RANKS",
    "nodelist": "NODELIST",
    "timestamp": "TIME",
    "reason": "REASON",
}

STATUS_FORMATS = {
    "default": (
        "Default flux-resource status format string",
        "{statex:>12}{up:>2} {nnodes:>6} {nodelist}",
    ),
    "long": (
        "Long flux-resource status format string",
        "{statex:>12}{up:>2} {nnodes:>6} +:{reason:<30.30+} {nodelist}",
    ),
}
DRAIN_FORMATS = {
    "default": (
        "Default flux-resource drain format string",
        "{timestamp!d:%b%d %R::<12} {state:<8.8} {reason:<30.30+} {nodelist}",
    ),
    "long": (
        "Long flux-resource drain format string",
        "{timestamp!d:%b%d %R::<12} {state:<8.8} {ranks:<8.8+} {reason:<30.30+} {nodelist}",
    ),
}

#: in the order in which they are shown
ONLINE_STATES = ("avail", "exclude", "torpid", "housekeeping", "draining", "drained")
STATES = (*ONLINE_STATES, "drain", "offline", "online", "allocated", "all")


class Row:
    """Ranks of one state."""

    def __init__(self, state, ranks, online, inventory, timestamp="", reason=""):
        self.state = state
        self.ranks = ranks
        self.online = online
        self.inventory = inventory
        self.timestamp = timestamp
        self.reason = reason

    def get(self, name):
        if name == "state":
            return self.state
        if name == "statex":
            return self.state if self.online else self.state + "*"
        if name == "up":
            return "✔" if self.online else "✗"
        if name == "up.ascii":
            return "y" if self.online else "n"
        if name == "status":
            return "online" if self.online else "offline"
        if name == "nnodes":
            return len(self.ranks)
        if name == "ranks":
            return idset.encode(idset.from_ids(self.ranks))
        if name == "nodelist":
            return self.inventory.select(self.ranks).nodelist()
        return getattr(self, name)


def _members(text):
    return set(idset.members(idset.decode(text or "")))


class ResourceStatus:
    """The answers of ``resource.status`` and the job manager put together."""

    def __init__(self, client):
        answer = client.rpc("resource.status")
        self.inventory = RSet.from_dict(answer["R"])
        every = set(self.inventory.ranks)
        self.offline = _members(answer.get("offline"))
        self.exclude = _members(answer.get("exclude"))
        self.torpid = _members(answer.get("torpid"))
        self.drains = [
            (_members(ranks), info.get("timestamp", 0.0), info.get("reason", ""))
            for ranks, info in answer.get("drain", {}).items()
        ]
        self.drain = {rank for ranks, _, _ in self.drains for rank in ranks}
        self.allocated = self._allocated(client)
        self.housekeeping = self._housekeeping(client)
        self.draining = self.drain & self.allocated
        self.drained = self.drain - self.allocated
        self.avail = every - self.exclude - self.drain

    @staticmethod
    def _allocated(client):
        try:
            answer = client.rpc("job-manager.resource-status")
            return set(RSet.from_dict(answer["allocated"]).ranks)
        except OSError:
            return set()

    @staticmethod
    def _housekeeping(client):
        try:
            jobs = client.rpc("job-manager.housekeeping-list", {})["jobs"]
        except OSError:
            return set()
        return {rank for job in jobs for rank in _members(job.get("pending"))}

    def rows(self, states, empty):
        """The rows for these states.

        Args:
            states: names; ``all`` and ``drain`` among them stand for several.
            empty: with those that have no ranks.
        """
        rows = []
        for state, online in states:
            ranks = getattr(self, state) & (
                set(self.inventory.ranks) - self.offline if online else self.offline
            )
            if ranks or empty:
                rows.append(Row(state, ranks, online, self.inventory))
        return rows

    def by_reason(self, row):
        """The row, or one for each reason its ranks were drained for."""
        if row.state not in ("drain", "draining", "drained") or not row.ranks:
            return [row]
        return [
            Row(row.state, row.ranks & ranks, row.online, self.inventory, timestamp, reason)
            for ranks, timestamp, reason in self.drains
            if row.ranks & ranks
        ]


def _expand(texts):
    """(state, online) pairs for the names in ``--states``."""
    pairs = []
    for name in texts:
        if name not in STATES:
            raise CommandError(f"Invalid resource state {name} specified")
        if name == "all":
            pairs += [(state, online) for state in ONLINE_STATES for online in (True, False)]
        elif name in ("online", "offline"):
            pairs += [(state, name == "online") for state in ONLINE_STATES]
        else:
            pairs.append((name, True))
    return pairs


def status(args):
    chosen = formats.choose(args.format, STATUS_FORMATS, "FLUX_RESOURCE_STATUS_FORMAT_DEFAULT")
    if chosen is None:
        return 0
    layout = OutputFormat(chosen[0], HEADINGS)
    pairs = _expand(args.states.split(",") if args.states else ["all"])
    client = connect()
    current = ResourceStatus(client)
    rows = current.rows(pairs, empty=bool(args.states) and not args.skip_empty)
    if {"reason", "timestamp"} & set(layout.names()):
        rows = [part for row in rows for part in current.by_reason(row)]
    if args.states:
        # offline ranks of a state that was asked for by name
        named = [(s, False) for s, online in pairs if online and s in args.states.split(",")]
        rows += current.rows(named, empty=False)
    rows = _narrow(rows, args, current, client)
    _print(layout, rows, args)
    return 0


def _narrow(rows, args, current, client):
    wanted = None
    try:
        if args.include:
            wanted = current.inventory.targets(args.include)
        if getattr(args, "queue", None):
            queues = QueueMap(client.rpc("config.get") or {})
            parts = [queues.select(current.inventory, name) for name in args.queue.split(",")]
            ranks = {rank for part in parts for rank in part.ranks}
            wanted = ranks if wanted is None else wanted & ranks
    except RError as exc:
        raise CommandError(str(exc)) from None
    if wanted is None:
        return rows
    for row in rows:
        row.ranks &= wanted
    return [row for row in rows if row.ranks]


def _print(layout, rows, args):
    text = layout.lines(rows, Row.get, header=not args.no_header)
    if text:
        sys.stdout.write("\n".join(text) + "\n")


def drain_table(args):
    """The drained ranks, latest last, those that a job still holds apart."""
    chosen = formats.choose(args.format, DRAIN_FORMATS, "FLUX_RESOURCE_DRAIN_FORMAT_DEFAULT")
    if chosen is None:
        return 0
    layout = OutputFormat(chosen[0], HEADINGS)
    client = connect()
    current = ResourceStatus(client)
    rows = []
    for ranks, timestamp, reason in current.drains:
        for state in ("draining", "drained"):
            part = ranks & getattr(current, state)
            for online in (True, False):
                some = part - current.offline if online else part & current.offline
                if some:
                    name = state if online else state + "*"
                    rows.append(Row(name, some, online, current.inventory, timestamp, reason))
    rows = _narrow(rows, args, current, client)
    _print(layout, rows, args)
    return 0
