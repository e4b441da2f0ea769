# SPDX-License-Identifier: LGPL-3.0-or-later
"""The states of a request and a job, and their transitions.

Each is a table of moves, which the code runs on: a change of state looks up the next state, and a
move missing from the table is a bug, reported where it happens. The documentation draws its
pictures from the same tables (``doc/reference/states``).

`REQUEST`
    a ``sched.alloc`` request (RFC 27): open until it is answered, once
`JOB`
    a job, from its request to its final free
"""

from __future__ import annotations

from collections.abc import Mapping


class IllegalMove(RuntimeError):
    """An event that is impossible in this state."""


class StateTable:
    """States, and the moves between them."""

    def __init__(
        self,
        name: str,
        initial: str,
        moves: Mapping[str, Mapping[str, str]],
        notes: Mapping[str, str],
    ) -> None:
        self.name = name  # name of the object with the states, for errors and the documentation
        self.initial = initial
        self.moves = moves  # state -> {event: next state}
        self.notes = notes  # state -> its meaning, in a sentence
        #: (state, event) -> next state, for code that runs for each job
        self.next = {
            (state, event): after
            for state, events in moves.items()
            for event, after in events.items()
        }

    def after(self, state: str, event: str) -> str:
        """Return the state after `event` in `state`.  O(1). Raises IllegalMove if the event is
        impossible."""
        try:
            return self.next[state, event]
        except KeyError:
            raise self.illegal(state, event) from None

    def illegal(self, state: str, event: str) -> IllegalMove:
        """Return the error for a move missing from the table."""
        return IllegalMove(f"{self.name}: {event} while {state}")


# states of a request
OPEN = "open"
SUCCEEDED = "succeeded"
DENIED = "denied"
CANCELED = "canceled"

REQUEST = StateTable(
    "request",
    OPEN,
    {
        OPEN: {"success": SUCCEEDED, "deny": DENIED, "cancel": CANCELED},
        SUCCEEDED: {"fail": DENIED},
        DENIED: {},
        CANCELED: {},
    },
    {
        OPEN: "It waits for its answer, and may be annotated.",
        SUCCEEDED: "The job has resources; the answer is sent when R is stored.",
        DENIED: "The job will never run. Also after a success that could not be sent.",
        CANCELED: "The job manager has withdrawn it; it may ask again.",
    },
)

# states of a job
UNKNOWN = "unknown"
QUEUED = "queued"
DEFERRED = "deferred"
RUNNING = "running"

JOB = StateTable(
    "job",
    UNKNOWN,
    {
        UNKNOWN: {"request": QUEUED, "hello": RUNNING},
        QUEUED: {
            "defer": DEFERRED,
            "success": RUNNING,
            "deny": UNKNOWN,
            "cancel": UNKNOWN,
        },
        DEFERRED: {"readmit": QUEUED, "success": RUNNING, "deny": UNKNOWN, "cancel": UNKNOWN},
        RUNNING: {"free": RUNNING, "final free": UNKNOWN},
    },
    {
        UNKNOWN: "The scheduler knows nothing of it.",
        QUEUED: "Its request is open, and it is in the queue.",
        DEFERRED: "Its request is open; an admission rule keeps it from starting, so it is not in "
        "the queue and keeps nothing from other jobs.",
        RUNNING: "It holds resources: since its request succeeded, or it was found running at the "
        "start. They may come back in parts.",
    },
)
