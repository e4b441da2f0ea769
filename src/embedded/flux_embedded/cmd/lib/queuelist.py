"""The table of ``flux queue list``."""

from flux_embedded.cmd.lib import formats
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.inventory import QueueMap, sched_status
from flux_embedded.cmd.lib.outfmt import OutputFormat
from flux_embedded.formats import fsd

HEADINGS = {
    "queue": "QUEUE",
    "queuem": "QUEUE",
    "submission": "SUBMIT",
    "scheduling": "SCHED",
    "enabled": "EN",
    "enabled.ascii": "EN",
    "started": "ST",
    "started.ascii": "ST",
    "color_enabled": "",
    "color_started": "",
    "color_off": "",
    "defaults.timelimit": "TDEFAULT",
    "limits.timelimit": "TLIMIT",
    "limits.range.nnodes": "NNODES",
    "limits.range.ncores": "NCORES",
    "limits.range.ngpus": "NGPUS",
    "limits.min.nnodes": "MINNODES",
    "limits.max.nnodes": "MAXNODES",
    "limits.min.ncores": "MINCORES",
    "limits.max.ncores": "MAXCORES",
    "limits.min.ngpus": "MINGPUS",
    "limits.max.ngpus": "MAXGPUS",
}
FORMATS = {
    "default": (
        "Default flux-queue list format string",
        "?:{queuem:<8.8} {color_enabled}{enabled:>2}{color_off} {color_started}{started:>2}{color_off} "
        "{defaults.timelimit:>8} {limits.timelimit:>8} {limits.range.nnodes:>10} {limits.range.ncores:>10} "
        "{limits.range.ngpus:>10}",
    ),
    "nocolor": (
        "Default format without color",
        "?:{queuem:<8.8} {enabled:>2} {started:>2} {defaults.timelimit:>8} {limits.timelimit:>8} "
        "{limits.range.nnodes:>10} {limits.range.ncores:>10} {limits.range.ngpus:>10}",
    ),
}
GREEN, RED, OFF = "\033[01;32m", "\033[01;31m", "\033[0;0m"
COUNTED = {"nnodes": "node", "ncores": "core", "ngpus": "gpu"}


def _dig(table, path):
    for key in path.split("."):
        if not isinstance(table, dict) or key not in table:
            return None
        table = table[key]
    return table


class QueueInfo:
    """What the table shows of one queue."""

    def __init__(self, name, status, config, rset):
        self.name = name
        self.status = status
        self.config = config
        self.rset = rset

    def policy(self, path):
        """A policy value: the queue's own, its parent's, or the global one."""
        queues = self.config.get("queues") or {}
        own = queues.get(self.name) or {}
        for table in (own, queues.get(own.get("parent")) or {}, self.config):
            value = _dig(table, "policy." + path)
            if value is not None:
                return value
        return None

    def _time(self, path):
        value = self.policy(path)
        if value is None:
            return "inf"
        seconds = fsd.parse(value) if isinstance(value, str) else float(value)
        return fsd.encode(seconds) if seconds not in (0, float("inf")) else "inf"

    def _limit(self, which, name):
        value = self.policy(f"limits.job-size.{which}.{name}")
        if value is None or value < 0:
            return 0 if which == "min" else self.rset.count(COUNTED[name])
        return value

    def get(self, name):
        enabled, started = self.status["enable"], self.status["start"]
        if name == "queue":
            return self.name or ""
        if name == "queuem":
            default = _dig(self.config, "policy.jobspec.defaults.system.queue")
            return (self.name or "") + ("*" if self.name and self.name == default else "")
        if name == "submission":
            return "enabled" if enabled else "disabled"
        if name == "scheduling":
            return "started" if started else "stopped"
        if name in ("enabled", "started"):
            return "✔" if (enabled if name == "enabled" else started) else "✗"
        if name.endswith(".ascii"):
            return "y" if (enabled if name.startswith("enabled") else started) else "n"
        if name == "color_off":
            return OFF
        if name.startswith("color_"):
            return GREEN if (enabled if name == "color_enabled" else started) else RED
        if name == "defaults.timelimit":
            return self._time("jobspec.defaults.system.duration")
        if name == "limits.timelimit":
            return self._time("limits.duration")
        _, which, what = name.split(".")
        if which == "range":
            return f"{self._limit('min', what)}-{self._limit('max', what)}"
        return self._limit(which, what)


def lines(client, names, wanted, layout, header):
    """The lines of the table; None after ``-o help``."""
    chosen = formats.choose(layout, FORMATS, "FLUX_QUEUE_LIST_FORMAT_DEFAULT")
    if chosen is None:
        return None
    table = OutputFormat(chosen[0], HEADINGS)
    for name in wanted:
        if name not in names:
            raise CommandError(f"No such queue: {name}")
    config = client.rpc("config.get") or {}
    everything = sched_status(client).all
    queues = QueueMap(config)
    items = []
    for name in names:
        if wanted and name not in wanted:
            continue
        status = client.rpc("job-manager.queue-status", {"name": name} if name else {})
        rset = queues.select(everything, name) if name in queues.requires else everything
        items.append(QueueInfo(name, status, config, rset))
    return table.lines(items, QueueInfo.get, header)
