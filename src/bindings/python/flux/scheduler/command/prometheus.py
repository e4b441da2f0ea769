# SPDX-License-Identifier: LGPL-3.0-or-later
"""Statistics of the scheduler in the text format of Prometheus (version 0.0.4).

As Prometheus recommends, durations and times are in seconds, and names of counters end in
``_total``. No label is a job id, a user or a sentence: the number of series would grow without
limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Tuple

#: Labels and value of one series.
Sample = Tuple[Mapping[str, str], float]


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    whole = float(value).is_integer() and abs(value) < 1e15
    return repr(int(value)) if whole else repr(float(value))


def family(name: str, text: str, samples: Iterable[Sample]) -> list[str]:
    """Return the lines of one metric: HELP, TYPE and samples, each with its labels; none without
    samples. The name of a counter ends in ``_total``."""
    lines = []
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escape(str(labels[key]))}"' for key in sorted(labels))
        lines.append(f"{name}{'{' + inside + '}' if inside else ''} {_number(value)}")
    kind = "counter" if name.endswith("_total") else "gauge"
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *lines] if lines else []


#: key of the statistics -> (name after ``flux_sched_``, help)
_METRICS_OF_STATS = {
    "sched_passes": ("passes_total", "Completed scheduling passes."),
    "sched_yields": ("steps_total", "Steps of scheduling passes."),
    "sched_closed": ("passes_closed_total", "Passes ended early because of an event that needed a new pass."),
    "forecast_passes": ("forecasts_total", "Completed forecasts."),
    "commits": ("commits_total", "Commits of allocated resources to the KVS."),
    "errors": ("errors_total", "Errors that were logged and survived."),
    "sched_delay": ("delay_seconds", "Delay before a pass, so that a burst of events is handled by one."),
    "pending_jobs": ("pending_jobs", "Jobs with an open request."),
    "reserved": ("promised_jobs", "Pending jobs that were promised a start."),
    "parked": ("parked_jobs", "Jobs set aside until more nodes come up."),
    "unlooked": (
        "oldest_look_seconds",
        "How long the pending job that was examined least recently has waited for it.",
    ),
}  # fmt: skip
#: key of the counts of preemptions -> (name after ``flux_sched_``, help)
_METRICS_OF_PREEMPTIONS = {
    "victims": ("preempted_jobs_total", "Jobs ended to make way for others."),
    "node_hours": ("preempted_node_hours_total", "Node-hours that were lost so."),
    "useless": ("preempted_uselessly_total", "Jobs ended for one that did not start there."),
}


def exposition(answer: Mapping[str, Any]) -> str:
    """Return all metrics of an answer of the service ``sched.stats``.

    Args:
        answer: ``name`` of the module, ``started`` (seconds since the epoch), ``stats`` (as from
            ``stats-get``), ``nodes`` (count by state), ``reasons`` (count of pending jobs by queue
            and kind of reason), ``started_jobs`` (count by selection type)
    """
    lines: list[str] = []

    def add(name: str, text: str, samples: Iterable[Sample]) -> None:
        lines.extend(family(f"flux_sched_{name}", text, samples))

    def by(label: str, key: str) -> list[Sample]:
        return [({label: name}, count) for name, count in sorted((answer.get(key) or {}).items())]

    add("info", "The scheduler module.", [({"module": str(answer.get("name", ""))}, 1)])
    if answer.get("started") is not None:
        text = "When the scheduler was loaded, and counters began at 0."
        add("start_timestamp_seconds", text, [({}, answer["started"])])
    for key, (metric, text) in _METRICS_OF_STATS.items():
        value = (answer.get("stats") or {}).get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            add(metric, text, [({}, value)])
    add("nodes", "Nodes by state.", by("state", "nodes"))
    reasons = [
        ({"queue": entry["queue"] or "", "reason": entry["kind"]}, entry["count"])
        for entry in answer.get("reasons") or ()
    ]
    add("jobs", "Pending jobs by queue and kind of reason.", reasons)
    add(
        "jobs_started_total",
        "Jobs started, by how they were chosen.",
        by("selection", "started_jobs"),
    )
    held = [
        ({"name": entry["name"], "state": state}, entry[state])
        for entry in answer.get("reservations") or ()
        for state in ("held", "short")
    ]
    text = "Nodes that active reservations hold, and nodes that they are short of."
    add("reservation_nodes", text, held)
    for key, (metric, text) in _METRICS_OF_PREEMPTIONS.items():
        ended = answer.get("preemptions") or ()
        add(metric, text, [({"class": entry["class"]}, entry[key]) for entry in ended])
    return "\n".join(lines) + "\n"
