# SPDX-License-Identifier: LGPL-3.0-or-later
"""Schemes of dependencies (RFC 26).

- ``.dependency-after``: afterstart (also as after), afterany, afterok and afternotok. A job that never got resources satisfies only
  ``afterany``.
- ``.begin-time``: a job waits for a time; the value is seconds since the epoch.
"""

from flux.jobtap import CURRENT_JOB
from flux_engine.formats import jobid
from flux_engine.formats.states import COMPLETED, INACTIVE

#: scheme -> prefix of the description in the eventlog
KINDS = {
    "after": "after-start",  # deprecated
    "afterstart": "after-start",
    "afterany": "after-finish",
    "afterok": "after-success",
    "afternotok": "after-failure",
}


# -- .dependency-after ------------------------------------------------------------------------------------


def after_init(p):
    p.waiting = {}  # antecedent -> [(dependent, kind, description)]
    for scheme in KINDS:
        p.add_handler(f"job.dependency.{scheme}", after)
    p.add_handler("job.event.start", lambda p, topic, args: settle_started(p, args["id"]))
    p.add_handler("job.event.clean", lambda p, topic, args: settle_ended(p, args["id"]))


def after(p, topic, args):
    spec = args["dependency"]
    scheme, text = spec["scheme"], spec.get("value")
    try:
        antecedent = jobid.decode(str(text))
    except ValueError:
        p.reject_job(f'dependency: {scheme}: "{text}" is not a valid jobid')
    try:
        other = p.job_lookup(antecedent)
    except OSError:
        p.reject_job(f"dependency: {scheme}: id {text}: job not found")
    if antecedent == args["id"]:
        p.reject_job(f"dependency: {scheme}: a job cannot depend on itself")
    if other["userid"] != args["userid"]:
        p.reject_job(f"{scheme}: Permission denied for job {text}")
    kind = KINDS[scheme]
    if other["state"] == INACTIVE:
        reason = why_never(p, antecedent, kind, text)
        if reason is not None:
            p.reject_job(f"dependency: {reason}")
    description = f"{kind}={text}"
    try:
        p.dependency_add(CURRENT_JOB, description)
    except FileExistsError:
        return  # named twice, or met before a restart
    entry = (args["id"], kind, description)
    waiting = p.waiting.setdefault(antecedent, [])
    if entry not in waiting:
        waiting.append(entry)
    if p.job_event_posted(antecedent, "start"):
        settle_started(p, antecedent)
    if other["state"] == INACTIVE:
        settle_ended(p, antecedent)
    else:
        p.job_subscribe(antecedent)


def why_never(p, antecedent, kind, text):
    """The reason why an inactive job does not satisfy a dependency; None if it does."""
    if kind == "after-finish":
        return None
    if not p.job_event_posted(antecedent, "alloc"):
        return f"after: {text} never started"
    success = p.get_job_result(antecedent) == COMPLETED
    if kind == "after-start" and not p.job_event_posted(antecedent, "start"):
        return f"after: {text} never started"
    if kind == "after-success" and not success:
        return f"afterok: job {text} failed or was canceled"
    if kind == "after-failure" and success:
        return f"afternotok: job {text} succeeded"
    return None


def settle_started(p, antecedent):
    waiting = p.waiting.get(antecedent, [])
    for entry in [entry for entry in waiting if entry[1] == "after-start"]:
        waiting.remove(entry)
        met(p, entry[0], entry[2])


def settle_ended(p, antecedent):
    ran = p.job_event_posted(antecedent, "alloc")
    for entry in p.waiting.pop(antecedent, ()):
        if why_never(p, antecedent, entry[1], "") is None:
            met(p, entry[0], entry[2])
        else:
            never(p, entry, "can never be satisfied" if ran else "job never started")


def met(p, dependent, description):
    try:
        p.dependency_remove(dependent, description)
    except OSError:
        pass  # the dependent is gone, or past DEPEND


def never(p, entry, reason):
    dependent, _, description = entry
    try:
        p.raise_exception(dependent, "dependency", 0, f"dependency {description} {reason}")
    except OSError:
        pass


# -- .begin-time ------------------------------------------------------------------------------------------


def begin_time_init(p):
    p.add_handler("job.dependency.begin-time", begin_time)


def begin_time(p, topic, args):
    value = args["dependency"].get("value")
    try:
        when = float(value)
        if not 0 <= when < float("inf"):
            raise ValueError
    except (TypeError, ValueError):
        p.reject_job(f"begin-time={value}: expected seconds since the epoch")
    id, description = args["id"], f"begin-time={when:.3f}"
    try:
        p.dependency_add(CURRENT_JOB, description)
    except FileExistsError:
        pass  # a restart: only the timer is missing

    def begin(handle, watcher, revents, arg):
        met(p, id, description)

    delay = max(0.0, when - p.handle.reactor_now(p.handle.get_reactor()))
    timer = p.handle.timer_watcher_create(delay, begin).start()
    p.job_aux_set(CURRENT_JOB, "timer", timer, lambda watcher: watcher.destroy())
