# SPDX-License-Identifier: LGPL-3.0-or-later
"""Something in every topic: on both hosts the eventlogs of t2205 come of it."""

from flux.jobtap import CURRENT_JOB


def plugin_init(p):
    p.set_name("same")
    p.set_load_sort_order("state")
    for topic, callback in (
        ("job.create", create),
        ("job.validate", validate),
        ("job.new", new),
        ("job.dependency.gate", gate),
        ("job.state.depend", depend),
        ("job.state.priority", priority),
        ("job.priority.get", priority),
        ("job.state.sched", sched),
        ("job.state.run", run),
        ("job.state.cleanup", cleanup),
        ("job.event.*", event),
        ("job.update", update),
        ("job.update.attributes.system.same", update_key),
        ("same.answer", answer),
        ("plugin.query", query),
    ):
        p.add_handler(topic, callback)
    p.service_register("open", open_gate)
    p.service_register("rename", rename)


def mode_of(args):
    return args["jobspec"]["attributes"]["system"].get("mode", "")


def create(p, topic, args):
    p.event_post(CURRENT_JOB, "same.create", {"mode": mode_of(args)})


def validate(p, topic, args):
    if mode_of(args) == "reject":
        p.reject_job("not this one")
    p.jobspec_update({"attributes.system.a": 1})
    p.jobspec_update({"attributes.system.b": [1, {"c": None}]})
    if mode_of(args) == "answers":
        return {"annotations": {"x": 1}, "priority": "high", "R": {}}


def new(p, topic, args):
    p.job_subscribe(CURRENT_JOB)
    p.job_set_flag(CURRENT_JOB, "debug") if mode_of(args) == "flag" else None
    if mode_of(args) == "answers":
        return {"priority": "high"}


def gate(p, topic, args):
    p.dependency_add(CURRENT_JOB, "gate=" + args["dependency"]["value"])


def open_gate(p, msg):
    p.dependency_remove(msg.payload["id"], msg.payload["description"])
    p.handle.respond(msg, {"state": p.job_lookup(msg.payload["id"])["state"]})


def depend(p, topic, args):
    if mode_of(args) == "depend":
        p.dependency_add(CURRENT_JOB, "one")
        p.dependency_add(CURRENT_JOB, "one")
        p.dependency_remove(CURRENT_JOB, "one")
        p.event_post(CURRENT_JOB, "same.depend")


def priority(p, topic, args):
    if mode_of(args) == "bad-priority":
        return {"priority": "high"}
    return {"priority": args["urgency"] * 2}


def sched(p, topic, args):
    if mode_of(args) == "priority":
        return {"priority": 99}
    if mode_of(args) == "update":
        if args["jobspec"]["attributes"]["system"]["a"] == 1:
            p.jobspec_update({"attributes.system.a": 2})
    if mode_of(args) == "raise":
        raise ValueError("only logged")
    if mode_of(args) == "cancel":
        p.raise_exception(CURRENT_JOB, "cancel", 0, "by plugin")


def run(p, topic, args):
    if mode_of(args) == "stop":
        return p.raise_exception(CURRENT_JOB, "stop", 0, "too late")
    p.prolog_start("prolog")
    p.prolog_finish(CURRENT_JOB, "prolog", 0)


def cleanup(p, topic, args):
    if mode_of(args) == "stop":
        try:
            p.dependency_remove(CURRENT_JOB, "one")
        except OSError as exc:
            p.event_post(CURRENT_JOB, "same.errno", {"errno": exc.errno})
    p.epilog_start("epilog")
    p.epilog_finish(CURRENT_JOB, "epilog", 3)


def event(p, topic, args):
    if args["entry"]["name"] == "validate":
        p.event_post(CURRENT_JOB, "same.seen", {"event": "validate"})


def update(p, topic, args):
    if "attributes.system.same" in args["updates"]:
        p.event_post(CURRENT_JOB, "same.updated", dict(args["updates"]))


def update_key(p, topic, args):
    if args["value"] == "no":
        return -1
    return {"updates": {"attributes.system.too": args["value"]}, "validated": True}


def query(p, topic, args):
    if p.args.get("mute"):
        p.error("nothing to tell")
    return {"validated": "yes", "annotations": "none"}


def answer(p, topic, args):
    return {"answer": args["id"]}


def rename(p, msg):
    p.jobspec_update_id(msg.payload["id"], {"attributes.system.job.name": "renamed"})
    p.handle.respond(msg)
