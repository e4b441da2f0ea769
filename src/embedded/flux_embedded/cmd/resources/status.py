"""``flux resource status`` and the table of ``flux resource drain``."""

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, warn
from flux_embedded.cmd.lib.inventory import narrow
from flux_embedded.cmd.lib.outfmt import OutputFormat
from flux_embedded.formats import idset
from flux_embedded.formats.rset import RSet

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

STATUS_FORMATS = {
    "default": (
        "Default flux-resource status format string",
        "{state:>12} {color_up}{up:>2}{color_off} {nnodes:>6} {nodelist}",
    ),
    "long": (
        "Long flux-resource status format string",
        "{state:>12} {color_up}{up:>2}{color_off} {nnodes:>6} +:{reason:<30.30} {nodelist}",
    ),
}
DRAIN_FORMATS = {
    "long": (
        "Long flux-resource drain format string",
        "{timestamp!d:%b%d %R::<12} {state:<8.8} {ranks:<8.8+} +:{reason:<30.30} {nodelist}",
    ),
    "default": (
        "Default flux-resource drain format string",
        "{timestamp!d:%b%d %R::<12} {state:<8.8} {reason:<30.30+} {nodelist}",
    ),
}

#: in the order in which they are shown
SHOWN = ("avail", "exclude", "allocated", "torpid", "housekeeping", "draining", "drained")
DEFAULT = tuple(state for state in SHOWN if state != "allocated")
STATES = (
    "all",
    "online",
    "avail",
    "offline",
    "exclude",
    "drain",
    "draining",
    "drained",
    "torpid",
    "allocated",
    "housekeeping",
)


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
            return self.state if self.online else self.state + "*"
        if name == "statex":
            return self.state
        if name == "up":
            return "✔" if self.online else "✗"
        if name == "up.ascii":
            return "y" if self.online else "n"
        if name == "status":
            return "online" if self.online else "offline"
        if name == "nnodes":
            return len(self.ranks)
        if name == "ranks":
            return idset.text(self.ranks)
        if name == "nodelist":
            return self.inventory.select(self.ranks).encode_hosts()
        if name.startswith("color_"):
            return ""
        return getattr(self, name)


def _members(text):
    return set(idset.ids(text or ""))


class ResourceStatus:
    """The answers of ``resource.status`` and the job manager put together."""

    def __init__(self, client):
        answer = client.rpc("resource.status")
        self.inventory = RSet(answer["R"])
        every = set(self.inventory.have)
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
            return set(RSet(answer["allocated"]).have)
        except OSError:
            return set()

    @staticmethod
    def _housekeeping(client):
        try:
            jobs = client.rpc("job-manager.stats-get")["housekeeping"]["running"].values()
        except OSError:
            return set()
        return {rank for job in jobs for rank in _members(job.get("pending"))}

    def keep(self, ranks):
        """Forget all other ranks."""
        for name in (*SHOWN, "offline"):
            setattr(self, name, getattr(self, name) & ranks)

    def rows(self, states, onlines):
        """The rows of some states, those without ranks too.

        Args:
            states: names of `SHOWN`
            onlines: True, False or both: which ranks
        """
        if {"draining", "drained"} & set(states):
            self.torpid -= {
                r for name in ("draining", "drained") if name in states for r in getattr(self, name)
            }
        rows = []
        for state in SHOWN:
            if state not in states:
                continue
            found = getattr(self, state)
            for online in onlines:
                ranks = found - self.offline if online else found & self.offline
                if state in ("draining", "drained") and (found or not online):
                    rows += self._by_reason(state, ranks, online)
                else:
                    rows.append(Row(state, ranks, online, self.inventory))
        return rows

    def _by_reason(self, state, ranks, online):
        """A row for each reason, and time, for which ranks were drained, in the order of ranks."""
        parts = [
            Row(state, ranks & some, online, self.inventory, timestamp, reason)
            for some, timestamp, reason in self.drains
            if ranks & some
        ]
        return sorted(parts, key=lambda row: min(row.ranks))


def _states(text):
    """(states to show, whether online and offline ranks are)."""
    names = text.split(",") if text else list(DEFAULT)
    for name in names:
        if name not in STATES:
            raise CommandError(
                f"Invalid resource state {name} specified\n"
                f"flux-resource: INFO: valid states: {','.join(STATES)}"
            )
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
        return 0
    return _show(args, STATUS_FORMATS, "status", args.skip_empty or not args.states)


def drain_table(args):
    """The drained ranks, those that a job still holds apart."""
    args.states = "drain"
    return _show(args, DRAIN_FORMATS, "drain", True)


def _show(args, named, table, skip_empty):
    states, onlines = _states(args.states)
    layout = OutputFormat.named(args.format, named, HEADINGS, "resource", table)
    if layout is None:
        return 0
    for field in layout.fields:
        if field.name == "color_up":  # which takes the blank before it along
            field.literal = field.literal.rstrip(" ")
    client = connect()
    current = ResourceStatus(client)
    if args.include or args.queue:
        current.keep(set(narrow(current.inventory, args, client, current.inventory).have))
    rows = _alike(current.rows(states, onlines), layout)
    rows = [
        row
        for row in rows
        if row.ranks or not (skip_empty or (not row.online and "offline" not in states))
    ]
    return layout.show(rows, Row.get, header=not args.no_header)


def _alike(rows, layout):
    """Rows that only their ranks tell apart in what is shown put together."""
    found = {}
    for row in rows:
        key = tuple(
            field.text(row.get(field.name))
            for field in layout.fields
            if field.name not in ("nodelist", "ranks", "nnodes")
        )
        if key in found:
            found[key].ranks = found[key].ranks | row.ranks
        else:
            found[key] = row
    return list(found.values())
