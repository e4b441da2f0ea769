# SPDX-License-Identifier: LGPL-3.0-or-later
"""The rules of a legal job eventlog (RFC 18, 21), written from the RFCs alone, not from src/.

`check(events)` replays a log and raises `Violation` at the first impossible event; it returns the
job's state.
"""

#: event -> context keys it must have
CONTEXT = {
    "submit": ("userid", "urgency", "flags", "version"),
    "dependency-add": ("description",),
    "dependency-remove": ("description",),
    "priority": ("priority",),
    "urgency": ("urgency", "userid"),
    "prolog-start": ("description",),
    "prolog-finish": ("description", "status"),
    "epilog-start": ("description",),
    "epilog-finish": ("description", "status"),
    "finish": ("status",),
    "release": ("ranks", "final"),
    "exception": ("type", "severity", "note"),
    "set-flags": ("flags",),
    "resource-update": ("expiration",),
}

#: event -> states in which it may be posted, and the next state (None: unchanged)
MOVES = {
    "submit": (("",), "NEW"),
    "validate": (("NEW",), "DEPEND"),
    "depend": (("DEPEND",), "PRIORITY"),
    "priority": (("PRIORITY", "SCHED"), "SCHED"),
    "alloc": (("SCHED",), "RUN"),
    "start": (("RUN", "CLEANUP"), None),
    "finish": (("RUN", "CLEANUP"), "CLEANUP"),
    "release": (("RUN", "CLEANUP"), None),
    "free": (("CLEANUP",), None),
    "clean": (("CLEANUP",), "INACTIVE"),
    "urgency": (("DEPEND", "PRIORITY", "SCHED"), None),
    "dependency-add": (("NEW", "DEPEND"), None),
    # A real instance can find a dependency met before it has posted validate.
    "dependency-remove": (("NEW", "DEPEND"), None),
    "prolog-start": (("SCHED", "RUN"), None),
    "prolog-finish": (("RUN", "CLEANUP"), None),
    "epilog-start": (("CLEANUP",), None),
    "epilog-finish": (("CLEANUP",), None),
    "resource-update": (("RUN",), None),
}

#: At most one of each in a job's life.
ONCE = {"submit", "validate", "depend", "alloc", "start", "finish", "free", "clean"}


class Violation(AssertionError):
    """A rule was broken."""


def check(events):
    """Replay the eventlog of one job.

    Args:
        events (list of dict): decoded RFC 18 entries

    Returns:
        str: the job's state after the last of them

    Raises:
        Violation: an entry is malformed or out of place
    """
    state, seen, former = "", {}, 0.0
    open_prologs, open_epilogs, dependencies = [], [], []
    released = failed = False
    for position, event in enumerate(events):

        def illegal(reason, event=event, position=position):
            raise Violation(f"event {position} ({event}): {reason}")

        name = event.get("name")
        timestamp = event.get("timestamp")
        context = event.get("context", {})
        if not isinstance(name, str) or not isinstance(timestamp, (int, float)) or timestamp <= 0:
            illegal("an entry needs a name and a timestamp above 0")
        if "context" in event and (not isinstance(context, dict) or not context):
            illegal("a context is an object, left out when empty")
        if timestamp < former:
            illegal("time runs backwards")
        former = timestamp
        missing = [key for key in CONTEXT.get(name, ()) if key not in context]
        if missing:
            illegal(f"context lacks {missing}")
        # A real instance logs a second finish of a job that was cancelled as it ended.
        if name in ONCE and name in seen and not (name == "finish" and failed):
            illegal(f"a second {name}")
        if (position == 0) != (name == "submit"):
            illegal("submit comes first, and only first")
        if state == "INACTIVE":
            illegal("the job was inactive")
        seen[name] = event
        # Further conditions of each kind of event.
        if name == "depend" and dependencies:
            illegal(f"dependencies are open: {dependencies}")
        if name == "dependency-add":
            dependencies.append(context["description"])
        if name == "dependency-remove":
            if context["description"] not in dependencies:
                illegal("no such dependency is open")
            dependencies.remove(context["description"])
        if name == "start" and (open_prologs or "alloc" not in seen):
            illegal(f"it has no resources, or a prolog is open: {open_prologs}")
        if name in ("prolog-start", "epilog-start"):
            (open_prologs if name == "prolog-start" else open_epilogs).append(
                context["description"]
            )
        if name in ("prolog-finish", "epilog-finish"):
            opened = open_prologs if name == "prolog-finish" else open_epilogs
            if context["description"] not in opened:
                illegal("it was not open")
            opened.remove(context["description"])
        if name == "release":
            if released:
                illegal("the final release came before")
            released = context["final"]
        if name == "free" and ("alloc" not in seen or open_epilogs):
            illegal(f"nothing was allocated, or an epilog is open: {open_epilogs}")
        if name == "clean" and "alloc" in seen and "free" not in seen:
            illegal("its resources were not freed")
        failed = failed or name == "exception" and context["severity"] == 0
        state = _next_state(state, name, context, illegal)
    return state


def _next_state(state, name, context, illegal):
    if name == "exception":
        if not isinstance(context["severity"], int) or not 0 <= context["severity"] <= 7:
            illegal("severity is 0 to 7")
        if context["severity"] == 0 and state in ("NEW", "DEPEND", "PRIORITY", "SCHED", "RUN"):
            return "CLEANUP"
        return state
    if name in ("jobspec-update", "flux-restart"):
        return "PRIORITY" if state == "SCHED" else state
    if name not in MOVES:
        return state
    allowed, following = MOVES[name]
    if state not in allowed:
        illegal(f"not in state {state or 'before submit'}")
    if name == "urgency" and state == "SCHED":
        return "PRIORITY"
    if name == "finish" and state == "CLEANUP":
        return state
    return following or state
