# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's own rules, as plugins.

- ``.priority-default``: the priority is the urgency (RFC 30).
- ``.limit-job-size`` and ``.limit-duration``: the limits of ``policy`` and ``queues.NAME.policy`` (RFC 33); ``.validate-duration``: no
  job may be longer than the instance's remaining time.
- ``.dependency-after``: afterstart (also as after), afterany, afterok and afternotok (RFC 26). A job that never got resources satisfies
  only ``afterany``. ``.begin-time``: a job waits for a time; the value is seconds since the epoch.
- ``.update-duration`` and ``.update-queue``: the updates of a jobspec that are allowed. The instance owner may go beyond limits of the
  duration; others may only stay within them, and may not change the duration of a running job. A pending job that moves to another
  queue gets that queue's constraints; one with constraints of its own cannot move: all of them would be replaced.
"""

import contextlib
import json
import re

import flux.util
from flux.jobtap import CURRENT_JOB
from flux.queue import QueueConf
from flux_engine.formats import fsd, jobid
from flux_engine.formats.dotted import lookup_path
from flux_engine.formats.jobspec import count_resources
from flux_engine.formats.states import COMPLETED, INACTIVE, PENDING, RUN
from flux_engine.kernel.message import ROLE_OWNER

UNLIMITED = -1


def fsd_text(seconds):
    """A duration for a message, with two digits, as the job manager has it."""
    return re.sub(r"[\d.]+", lambda number: f"{float(number[0]):.2g}", flux.util.fsd(seconds))


def _for_queue(name):
    return f" for queue {name}" if name else ""


def _init(key, validate):
    """The init function of a plugin that checks jobs while any table of the configuration has a limit `key`."""

    def configure(p, topic, args):
        queues = QueueConf.from_config(args["conf"])
        p.limits = {name: queues.policy(name).get("limits", {}) for name in (None, *queues)}
        p.active = any(key in limits for limits in p.limits.values())

    def init(p):
        p.active = False
        p.add_handler("conf.update", configure)
        p.add_handler("job.validate", lambda p, topic, args: p.active and validate(p, args))

    return init


# -- .limit-job-size ----------------------------------------------------------------------------------


def job_size_validate(p, args):
    system = args["jobspec"]["attributes"]["system"]
    queue = system.get("queue")
    limits = p.limits.get(queue, p.limits[None])
    asked = count_resources(args["jobspec"]["resources"])
    for bound, what in (("max", "exceeds"), ("min", "is under")):
        for kind in ("node", "core", "gpu"):
            limit, value = lookup_path(limits, f"job-size.{bound}.n{kind}s"), asked[kind]
            if limit in (None, UNLIMITED):
                continue
            if value > limit if bound == "max" else value < limit:
                p.reject_job(
                    f"requested n{kind}s ({value}) {what} policy limit of {limit}{_for_queue(queue)}"
                )


job_size_init = _init("job-size", job_size_validate)


# -- .limit-duration ----------------------------------------------------------------------------------


def duration_validate(p, args):
    system = args["jobspec"]["attributes"]["system"]
    queue = system.get("queue")
    text = p.limits.get(queue, p.limits[None]).get("duration")
    limit = fsd.parse(text) if text is not None else 0
    if limit == 0 or limit == float("inf"):
        return
    duration = system.get("duration", 0)
    if duration == 0 or duration > limit:
        requested = fsd_text(duration) if duration else "unlimited"
        most = f"{fsd_text(limit)}{_for_queue(queue)}"
        p.reject_job(f"requested duration ({requested}) exceeds policy limit of {most}")


limit_duration_init = _init("duration", duration_validate)


# -- .validate-duration ---------------------------------------------------------------------------------


def lifetime_init(p):
    p.R, p.expiration = None, 0.0
    p.add_handler("job.validate", lifetime_validate)


def lifetime_validate(p, topic, args):
    # The instance's expiration is that of resource.R.
    R = p.kvs.find("resource.R")
    if R is not p.R:
        p.R = R
        try:
            p.expiration = float(json.loads(R)["execution"].get("expiration") or 0.0)
        except (ValueError, KeyError, TypeError):
            p.expiration = 0.0
    if not p.expiration:
        return
    duration = args["jobspec"]["attributes"]["system"].get("duration", 0)
    left = p.expiration - p.handle.reactor_now(p.handle.get_reactor())
    if duration > left:
        p.reject_job(
            f"job duration ({fsd_text(duration)}) exceeds remaining instance lifetime ({fsd_text(max(left, 0.0))})"
        )


#: scheme -> prefix of the description in the eventlog
KINDS = {
    "after": "after-start",
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
    p.add_handler("job.inactive-add", lambda p, topic, args: settle_ended(p, args["id"]))


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
    if scheme == "after":
        note = "dependency scheme 'after' is deprecated, use 'afterstart'"
        p.raise_exception(CURRENT_JOB, "dependency", 3, note)
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
    failed = []
    for entry in p.waiting.pop(antecedent, ()):
        if why_never(p, antecedent, entry[1], "") is None:
            met(p, entry[0], entry[2])
        else:
            failed.append(entry)
    # Last: the end of one dependent may be that of another.
    for entry in failed:
        never(p, entry, "can never be satisfied" if ran else "job never started")


def met(p, dependent, description):
    with contextlib.suppress(OSError):  # the dependent is gone, or past DEPEND
        p.dependency_remove(dependent, description)


def never(p, entry, reason):
    dependent, _, description = entry
    with contextlib.suppress(OSError):
        p.raise_exception(dependent, "dependency", 0, f"dependency {description} {reason}")


# -- .begin-time ------------------------------------------------------------------------------------------


def begin_time(p, topic, args):
    value = args["dependency"].get("value")
    try:
        when = float(value)
        if not 0 <= when < float("inf"):
            raise ValueError
    except (TypeError, ValueError):
        p.reject_job(f"begin-time={value}: expected seconds since the epoch")
    id, description = args["id"], f"begin-time={when:.3f}"
    with contextlib.suppress(FileExistsError):  # a restart: only the timer is missing
        p.dependency_add(CURRENT_JOB, description)

    def begin(handle, watcher, revents, arg):
        met(p, id, description)

    delay = max(0.0, when - p.handle.reactor_now(p.handle.get_reactor()))
    timer = p.handle.timer_watcher_create(delay, begin).start()
    p.job_aux_set(CURRENT_JOB, "timer", timer, lambda watcher: watcher.destroy())


DURATION = "attributes.system.duration"
QUEUE = "attributes.system.queue"


def update_duration(p, topic, args):
    duration = args["updates"][DURATION]
    if type(duration) not in (int, float):
        p.error("plugin args unpack failed")
    if not 0 <= duration < float("inf"):
        p.error("duration must not be negative")
    if not args["cred"]["rolemask"] & ROLE_OWNER:
        if args["state"] == RUN:
            p.error("only the instance owner can update the duration of a running job")
        return None
    return {"validated": True}


def update_queue(p, topic, args):
    name = args["updates"][QUEUE]
    if not isinstance(name, str):
        p.error("plugin args unpack failed")
    if not args["state"] & PENDING:
        p.error("update of queue for running job not supported")
    queues = p.queues
    system = args["jobspec"]["attributes"]["system"]
    if name == system.get("queue"):
        p.error(f"job queue is already set to {name}")
    try:
        new = queues.find(name)
        given, queue = system.get("constraints") or {}, system.get("queue")
        if given != constraints(queues.find(queue)):  # the text names this queue, as in flux-core
            p.error(f"job appears to have non-queue constraints, unable to update queue to {queue}")
    except OSError as exc:
        p.error(exc.strerror)
    if not new.enabled:
        p.error(f"queue {name} is currently disabled")
    return {"feasibility": True, "updates": {"attributes.system.constraints": constraints(new)}}


def constraints(queue):
    return {"properties": list(queue.requires)} if queue.requires else {}


def priority_init(p):
    for topic in ("job.state.priority", "job.priority.get"):
        p.add_handler(topic, lambda p, topic, args: {"priority": args["urgency"]})


def _handling(topic, callback):
    return lambda p: p.add_handler(topic, callback)


#: In load order.
BUILTINS = {
    ".priority-default": priority_init,
    ".limit-job-size": job_size_init,
    ".limit-duration": limit_duration_init,
    ".dependency-after": after_init,
    ".begin-time": _handling("job.dependency.begin-time", begin_time),
    ".validate-duration": lifetime_init,
    ".update-duration": _handling(f"job.update.{DURATION}", update_duration),
    ".update-queue": _handling(f"job.update.{QUEUE}", update_queue),
}
