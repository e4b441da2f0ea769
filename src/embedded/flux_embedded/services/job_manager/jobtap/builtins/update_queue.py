# SPDX-License-Identifier: LGPL-3.0-or-later
"""``.update-queue``: move a pending job to another queue, with the constraints that go with it.

A job with constraints of its own stays where it is: all of them would be replaced.
"""

from flux_embedded.formats.states import PENDING

KEY = "attributes.system.queue"


def plugin_init(p):
    p.add_handler(f"job.update.{KEY}", update)


def update(p, topic, args):
    name = args["updates"][KEY]
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
    """What jobs of a queue are confined to."""
    return {"properties": list(queue.requires)} if queue.requires else {}
