# SPDX-License-Identifier: LGPL-3.0-or-later
"""Statistics of the scheduler in the text format of Prometheus (version 0.0.4).

As Prometheus recommends, durations and times are in seconds, and names of counters end in
``_total``. No label is a job id, a user or a sentence: the number of series would grow without
limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Tuple

#: Labels and value of one series.
Sample = Tuple[Mapping[str, str], float]

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return (
        repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
    )


def family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> list[str]:
    """Return the lines of one metric: HELP, TYPE and samples.

    Args:
        name: ``flux_sched_...``; a counter's ends in ``_total``
        kind: ``"counter"`` or ``"gauge"``
        text: one sentence of help
        samples: labels and value of each series

    Raises:
        ValueError: Prometheus forbids this name for the kind
    """
    if not _NAME.fullmatch(name) or (kind == "counter") != name.endswith("_total"):
        raise ValueError(f"{name!r} is not a valid name of a {kind}")
    lines = []
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escape(str(labels[key]))}"' for key in sorted(labels))
        lines.append(f"{name}{'{' + inside + '}' if inside else ''} {_number(value)}")
    if not lines:
        return []
    help_text = text.replace("\\", r"\\").replace("\n", r"\n")
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *lines]


#: key of the statistics -> (name, kind, help)
_METRICS_OF_STATS: dict[str, tuple[str, str, str]] = {
    "sched_passes": ("flux_sched_passes_total", "counter", "Completed scheduling passes."),
    "sched_yields": ("flux_sched_steps_total", "counter", "Steps of scheduling passes."),
    "sched_closed": (
        "flux_sched_passes_closed_total",
        "counter",
        "Passes ended early because of an event that needed a new pass.",
    ),
    "forecast_passes": ("flux_sched_forecasts_total", "counter", "Completed forecasts."),
    "commits": (
        "flux_sched_commits_total",
        "counter",
        "Commits of allocated resources to the KVS.",
    ),
    "errors": (
        "flux_sched_errors_total",
        "counter",
        "Errors that were logged and survived.",
    ),
    "sched_delay": (
        "flux_sched_delay_seconds",
        "gauge",
        "Delay before a pass, so that a burst of events is handled by one.",
    ),
    "pending_jobs": ("flux_sched_pending_jobs", "gauge", "Jobs with an open request."),
    "reserved": ("flux_sched_promised_jobs", "gauge", "Pending jobs that were promised a start."),
    "parked": ("flux_sched_parked_jobs", "gauge", "Jobs set aside until more nodes come up."),
    "unlooked": (
        "flux_sched_oldest_look_seconds",
        "gauge",
        "How long the pending job that was examined least recently has waited for it.",
    ),
}


def exposition(answer: Mapping[str, Any]) -> str:
    """Return all metrics of an answer of the service ``sched.stats``.

    Args:
        answer: ``name`` of the module, ``started`` (seconds since the epoch), ``stats`` (as from
            ``stats-get``), ``nodes`` (count by state), ``reasons`` (count of pending jobs by queue
            and kind of reason), ``started_jobs`` (count by selection type)
    """
    name = str(answer.get("name", ""))
    stats = answer.get("stats") or {}
    lines = family("flux_sched_info", "gauge", "The scheduler module.", [({"module": name}, 1)])
    started: float | None = answer.get("started")
    if started is not None:
        lines += family(
            "flux_sched_start_timestamp_seconds",
            "gauge",
            "When the scheduler was loaded, and counters began at 0.",
            [({}, started)],
        )
    for key, (metric, kind, text) in _METRICS_OF_STATS.items():
        value = stats.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            lines += family(metric, kind, text, [({}, value)])
    lines += family(
        "flux_sched_nodes",
        "gauge",
        "Nodes by state.",
        [({"state": state}, count) for state, count in sorted((answer.get("nodes") or {}).items())],
    )
    lines += family(
        "flux_sched_jobs",
        "gauge",
        "Pending jobs by queue and kind of reason.",
        [
            ({"queue": entry["queue"] or "", "reason": entry["kind"]}, entry["count"])
            for entry in answer.get("reasons") or ()
        ],
    )
    lines += family(
        "flux_sched_jobs_started_total",
        "counter",
        "Jobs started, by how they were chosen.",
        [
            ({"selection": kind}, count)
            for kind, count in sorted((answer.get("started_jobs") or {}).items())
        ],
    )
    lines += family(
        "flux_sched_reservation_nodes",
        "gauge",
        "Nodes that active reservations hold, and nodes that they are short of.",
        [
            ({"name": entry["name"], "state": state}, entry[state])
            for entry in answer.get("reservations") or ()
            for state in ("held", "short")
        ],
    )
    ended = answer.get("preemptions") or ()
    for key, metric, text in (
        ("victims", "flux_sched_preempted_jobs_total", "Jobs ended to make way for others."),
        ("node_hours", "flux_sched_preempted_node_hours_total", "Node-hours that were lost so."),
        (
            "useless",
            "flux_sched_preempted_uselessly_total",
            "Jobs ended for one that did not start there.",
        ),
    ):
        samples = [({"class": entry["class"]}, entry[key]) for entry in ended]
        lines += family(metric, "counter", text, samples)
    return "\n".join(lines) + "\n"
