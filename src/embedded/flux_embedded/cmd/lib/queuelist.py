"""The table of ``flux queue list``."""

import math

from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.inventory import QueueMap, SchedStatus, sched_status
from flux_embedded.cmd.lib.outfmt import OutputFormat
from flux_embedded.formats import fsd
from flux_embedded.formats.dotted import lookup_path

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
    "limits.range.effective.nnodes": "NNODES",
    "limits.range.effective.ncores": "NCORES",
    "limits.range.effective.ngpus": "NGPUS",
    "limits.min.nnodes": "MINNODES",
    "limits.max.nnodes": "MAXNODES",
    "limits.min.ncores": "MINCORES",
    "limits.max.ncores": "MAXCORES",
    "limits.min.ngpus": "MINGPUS",
    "limits.max.ngpus": "MAXGPUS",
}
HEADINGS.update(
    (
        f"resources.{state}.{item}",
        item[1:].upper() + ("" if state == "all" else f":{state[:5].upper()}"),
    )
    for item in ("nnodes", "ncores", "ngpus")
    for state in ("all", "free", "allocated", "up", "down")
)

_STATE = (
    "?:{queuem:<8.8} {color_enabled}{enabled:>2}{color_off} {color_started}{started:>2}{color_off} "
)
_TIMES = "{defaults.timelimit!F:>8} {limits.timelimit!F:>8} "
FORMATS = {
    "default": (
        "Default flux-queue list format string",
        _STATE + _TIMES + "{limits.range.effective.nnodes:>10} "
        "{limits.range.effective.ncores:>10} {limits.range.effective.ngpus:>10}",
    ),
    "policy": (
        "flux-queue list with policy limits only",
        _STATE + _TIMES + "{limits.range.nnodes:>10} {limits.range.ncores:>10} "
        "{limits.range.ngpus:>10}",
    ),
    "nodes": (
        "Show queue status plus all/up/allocated/free nodes",
        _STATE + "{resources.all.nnodes:>6} {resources.up.nnodes:>10} {resources.down.nnodes:>10} "
        "{resources.allocated.nnodes:>11} {resources.free.nnodes:>10}",
    ),
}
GREEN, RED, OFF = "\033[01;32m", "\033[01;31m", "\033[0;0m"
COUNTED = {"nnodes": "node", "ncores": "core", "ngpus": "gpu"}


class QueueInfo:
    """What the table shows of one queue.

    Args:
        name: None for the anonymous one
        status: response of ``job-manager.queue-status``
        config: the instance's configuration
        resources: state -> RSet of the queue
    """

    def __init__(self, name, status, config, resources):
        self.name = name
        self.status = status
        self.config = config
        self.resources = resources

    def policy(self, path):
        """A policy value: the queue's own, else the global one."""
        own = (self.config.get("queues") or {}).get(self.name) or {}
        for table in (own, self.config):
            value = lookup_path(table, "policy." + path)
            if value is not None:
                return value
        return None

    def _time(self, path):
        value = self.policy(path)
        if value is None:
            return math.inf
        return fsd.parse(value) if isinstance(value, str) else float(value)

    def _limit(self, which, what):
        value = self.policy(f"limits.job-size.{which}.{what}")
        if value is None:
            return 0 if which == "min" else math.inf
        return math.inf if value < 0 else value

    def _count(self, state, what):
        return self.resources[state].count(COUNTED[what])

    def get(self, name):
        enabled, started = self.status["enable"], self.status["start"]
        if name == "queue":
            return self.name or ""
        if name == "queuem":
            default = lookup_path(self.config, "policy.jobspec.defaults.system.queue")
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
        if name.startswith("resources."):
            return self._count(*name.split(".")[1:])
        what = name.rpartition(".")[2]
        if not name.startswith("limits.range."):
            return self._limit(name.split(".")[1], what)
        most = self._limit("max", what)
        if ".effective." in name:
            most = min(most, self._count("all", what))
        return f"{self._limit('min', what)}-{most}"


def show(client, names, wanted, layout, header):
    """Print the table."""
    table = OutputFormat.named(layout, FORMATS, HEADINGS, "queue", "list")
    if table is None:
        return 0
    for name in wanted:
        if name not in names:
            raise CommandError(f"No such queue: {name}")
    config = client.rpc("config.get") or {}
    status = sched_status(client)
    queues = QueueMap(config)
    items = []
    for name in names:
        if wanted and name not in wanted:
            continue
        resources = {state: status.get(state) for state in SchedStatus.STATES}
        if name in queues.requires:
            resources = {state: queues.select(rset, name) for state, rset in resources.items()}
        answer = client.rpc("job-manager.queue-status", {"name": name} if name else {})
        items.append(QueueInfo(name, answer, config, resources))
    return table.show(items, QueueInfo.get, header)
