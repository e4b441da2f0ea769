"""``.update-queue``: move a pending job to another queue, with the constraints that go with it."""

from flux_embedded.formats.states import PENDING

KEY = "attributes.system.queue"


def plugin_init(p):
    p.add_handler(f"job.update.{KEY}", update)


def update(p, topic, args):
    name = args["updates"][KEY]
    if not args["state"] & PENDING:
        p.error("update of queue for running job not supported")
    queues = p.jm.queues
    system = args["jobspec"]["attributes"]["system"]
    if not isinstance(name, str):
        p.error(f"{KEY}={name!r}: expected the name of a queue")
    if name == system.get("queue"):
        p.error(f"job queue is already set to {name}")
    try:
        queues.check_submit(name)
        old = set(queues.constraints_of(system.get("queue")))
        new = queues.constraints_of(name)
    except OSError as exc:
        p.error(exc.strerror)
    constraints = {
        "attributes.system.constraints": moved(system.get("constraints") or {}, old, new)
    }
    return {"feasibility": True, "updates": constraints}


def moved(constraints, old, new):
    """`constraints` with the properties that one queue added replaced by those of another."""
    properties = [item for item in constraints.get("properties", ()) if item not in old]
    properties += [item for item in new if item not in properties]
    result = {key: value for key, value in constraints.items() if key != "properties"}
    if properties:
        result["properties"] = properties
    return result
