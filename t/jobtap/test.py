# SPDX-License-Identifier: LGPL-3.0-or-later
"""Does in each callback what the job's attributes.system.jobtap.test-mode says."""

import json

from flux.jobtap import CURRENT_JOB


def plugin_init(p):
    p.set_name("test")
    p.handle.log(6, f"jobtap.test: conf={json.dumps(p.args, separators=(',', ':'))}")
    p.service_register("reprioritize", reprioritize)
    p.add_handler("job.*", act)


def reprioritize(p, msg):
    p.reprioritize_all()
    p.handle.respond(msg, {})


def act(p, topic, args):
    mode = args["jobspec"]["attributes"]["system"].get("jobtap", {}).get("test-mode")
    if mode is None:
        p.handle.log(3, "test: no test-mode")
        return -1
    if topic == "job.validate":
        return validate(p, mode)
    answer = {"annotations": {"test": mode}}
    if topic == "job.state.priority":
        if mode == "callback error":
            return -1
        if mode == "annotations error":
            answer["annotations"] = "test"
        if mode == "priority type error":
            answer["priority"] = "foo"
    elif topic == "job.state.sched":
        sched(p, mode, args, answer)
    elif topic == "job.priority.get":
        if mode == "priority.get: fail":
            return -1
        if mode == "priority.get: unavail":
            answer.update(p.priority_unavail(args))
        if mode == "priority.get: bad arg":
            answer["priority"] = "foo"
    return answer


def validate(p, mode):
    if mode == "validate failure":
        p.reject_job("rejected for testing")
    if mode == "validate failure nullmsg":
        p.reject_job()
    return -1 if mode == "validate failure nomsg" else 0


def sched(p, mode, args, answer):
    if mode == "sched: priority unavail":
        answer.update(p.priority_unavail())
    if mode == "sched: update priority":
        answer["priority"] = 42
    if mode == "sched: dependency-add":
        p.dependency_add(args["id"], "foo")
    if mode == "sched: exception":
        p.raise_exception(CURRENT_JOB, "test", 0, "sched: test exception")
    if mode == "sched: exception error":
        try:
            p.raise_exception(0, "test", 0, None)
        except OSError:
            pass
        else:
            p.raise_exception(CURRENT_JOB, "test", 0, "sched: exception error failed")
