# SPDX-License-Identifier: LGPL-3.0-or-later
"""``.update-duration`` and ``.update-queue``: the updates of a jobspec that are allowed.

The instance owner may go beyond limits of the duration; others may only stay within them, and may not change the duration
of a running job. A pending job that moves to another queue gets that queue's constraints; one with constraints of its own
cannot move: all of them would be replaced.
"""

from flux_engine.formats.states import PENDING, RUN
from flux_engine.kernel.message import ROLE_OWNER

DURATION = "attributes.system.duration"
QUEUE = "attributes.system.queue"


def duration_init(p):
    p.add_handler(f"job.update.{DURATION}", update_duration)


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


def queue_init(p):
    p.add_handler(f"job.update.{QUEUE}", update_queue)


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
        given = system.get("constraints") or {}
        if given != constraints(queues.find(system.get("queue"))):
            p.error(f"job appears to have non-queue constraints, unable to update queue to {name}")
    except OSError as exc:
        p.error(exc.strerror)
    if not new.enabled:
        p.error(f"queue {name} is currently disabled")
    return {"feasibility": True, "updates": {"attributes.system.constraints": constraints(new)}}


def constraints(queue):
    """The constraints of a queue's jobs."""
    return {"properties": list(queue.requires)} if queue.requires else {}
