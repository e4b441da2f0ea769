# SPDX-License-Identifier: LGPL-3.0-or-later
"""Job states and the table that derives them from the eventlog (RFC 21).

`next_state` alone derives a state from an event, for live jobs and for those read from an eventlog.
"""

import signal

NEW, DEPEND, PRIORITY, SCHED, RUN, CLEANUP, INACTIVE = 1, 2, 4, 8, 16, 32, 64
PENDING = DEPEND | PRIORITY | SCHED
RUNNING = RUN | CLEANUP
ACTIVE = PENDING | RUNNING

NAMES = {
    NEW: "NEW",
    DEPEND: "DEPEND",
    PRIORITY: "PRIORITY",
    SCHED: "SCHED",
    RUN: "RUN",
    CLEANUP: "CLEANUP",
    INACTIVE: "INACTIVE",
}
#: States that a filter may name: single ones, and groups.
MASKS = {name.lower(): state for state, name in NAMES.items() if state != NEW}
MASKS.update({name[0].lower(): state for state, name in NAMES.items() if state != NEW})
MASKS.update(pending=PENDING, running=RUNNING, active=ACTIVE)
#: Topic of the jobtap callback of each state.
TOPICS = {state: f"job.state.{name.lower()}" for state, name in NAMES.items()}

COMPLETED, FAILED, CANCELED, TIMEOUT = 1, 2, 4, 8
RESULT_NAMES = {COMPLETED: "COMPLETED", FAILED: "FAILED", CANCELED: "CANCELED", TIMEOUT: "TIMEOUT"}
#: Results that a filter may name.
RESULT_MASKS = {name.lower(): result for result, name in RESULT_NAMES.items()}
RESULT_MASKS.update(cd=COMPLETED, f=FAILED, ca=CANCELED, to=TIMEOUT)

FLAG_DEBUG, FLAG_WAITABLE, FLAG_NOVALIDATE = 2, 4, 8
#: Set by plugins only: a plugin allocates the job's resources.
FLAG_ALLOC_BYPASS = 1 << 16
FLAG_NAMES = {
    "debug": FLAG_DEBUG,
    "waitable": FLAG_WAITABLE,
    "novalidate": FLAG_NOVALIDATE,
    "alloc-bypass": FLAG_ALLOC_BYPASS,
}

URGENCY_MIN, URGENCY_DEFAULT, URGENCY_MAX = 0, 16, 31
URGENCY_HOLD, URGENCY_EXPEDITE = 0, 31
PRIORITY_MAX = 4294967295

#: event name -> {state before: state after}; an event or state that is not here changes nothing
TRANSITIONS = {
    "submit": {0: NEW},
    "validate": {NEW: DEPEND},
    "depend": {DEPEND: PRIORITY},
    "priority": {PRIORITY: SCHED},
    "urgency": {SCHED: PRIORITY},
    "jobspec-update": {SCHED: PRIORITY},
    "flux-restart": {SCHED: PRIORITY},
    "alloc": {SCHED: RUN},
    "finish": {RUN: CLEANUP},
    "clean": {CLEANUP: INACTIVE},
}
_FATAL = {DEPEND: CLEANUP, PRIORITY: CLEANUP, SCHED: CLEANUP, RUN: CLEANUP}
_NOTHING = {}


def next_state(state, name, context):
    """State after event `name` with `context` (a dict or None) in `state`; 0 is "before submit"."""
    if name == "exception":
        if context["severity"] == 0:
            return _FATAL.get(state, state)
        return state
    return TRANSITIONS.get(name, _NOTHING).get(state, state)


def result(status, end_event):
    """Result of a job that has ended (RFC 21), by the wait status of its ``finish`` event and the context of its first
    severity 0 exception (each may be None)."""
    if end_event is not None:
        kind = end_event["type"]
        if kind == "cancel":
            return CANCELED
        if kind in ("timeout", "timelimit"):
            return TIMEOUT
        return FAILED
    return COMPLETED if status == 0 else FAILED


def ending(status):
    """Return the text that commands print for a job's wait status; empty for success."""
    number, code = status & 0x7F, status >> 8
    if not number and code <= 128:
        return f"task(s) exited with exit code {code}" if code else ""
    who, number = ("job shell", number) if number else ("task(s)", code - 128)
    known = number < signal.NSIG and signal.strsignal(number)
    return f"{who} {known or f'Unknown signal {number}'}"
