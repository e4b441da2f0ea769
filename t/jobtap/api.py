# SPDX-License-Identifier: LGPL-3.0-or-later
"""The functions that same.py does not use, and calls that are refused, in each state of a job.

An answer other than the expected one is an exception of the job.
"""

import errno

from flux.jobtap import CURRENT_JOB

#: (errno, function, arguments) of the calls that are refused in all of these topics
IN_ALL = [
    (errno.ENOENT, "event_post", 0, "x"),
    (errno.EINVAL, "event_post", CURRENT_JOB, ""),
    (errno.ENOENT, "job_set_flag", 0, "debug"),
    (errno.EINVAL, "job_set_flag", CURRENT_JOB, "nosuch"),
    (errno.ENOENT, "job_lookup", 1234),
    (errno.ENOENT, "job_subscribe", 0),
    (errno.ENOENT, "job_event_posted", 0, "start"),
    (errno.ENOENT, "job_aux_set", 1234, "x", 1),
    (errno.ENOENT, "get_job_result", 1234),
    (errno.ENOENT, "dependency_add", 1234, "x"),
    (errno.ENOENT, "prolog_finish", 1, "x", 0),
    (errno.EINVAL, "jobspec_update", {"foo.bar": 1}),
    (errno.EINVAL, "jobspec_update_id", CURRENT_JOB, {"attributes.system.x": 1}),
]
REFUSED = {
    "job.validate": [(errno.ENOENT, "dependency_remove", CURRENT_JOB, "never")],
    "job.state.depend": [
        (errno.ENOENT, "dependency_remove", CURRENT_JOB, "never"),
        (errno.EINVAL, "event_post", CURRENT_JOB, "resource-update", {"expiration": 5.5}),
        (errno.EINVAL, "event_post", CURRENT_JOB, "alloc"),
        (errno.ENOENT, "call", 0, "same.answer", {}),
        (errno.EINVAL, "call", CURRENT_JOB, "job.foo", {}),
        (errno.EINVAL, "epilog_start", "x"),
    ],
    "job.state.sched": [],
    "job.state.run": [
        (errno.EINVAL, "get_job_result", CURRENT_JOB),
        (errno.EINVAL, "event_post", CURRENT_JOB, "resource-update", {"expiration": 5.5}),
        (errno.EINVAL, "epilog_start", "x"),
        (errno.EINVAL, "jobspec_update", {"attributes.system.x": 1}),
    ],
    "job.state.cleanup": [(errno.EINVAL, "prolog_start", "x")],
}


def plugin_init(p):
    p.set_name("api")
    p.add_handler("job.state.priority", lambda p, topic, args: p.priority_unavail())
    p.add_handler("job.priority.get", priority)
    p.add_handler("job.*", check)
    p.service_register("release", release)


def wrong(p, text):
    p.raise_exception(CURRENT_JOB, "api", 0, text)


def priority(p, topic, args):
    return {"priority": 9} if args["priority"] == 7 else p.priority_unavail(args)


def release(p, msg):
    p.reprioritize_job(msg.payload["id"], 7)
    p.reprioritize_all()
    p.handle.respond(msg)


def check(p, topic, args):
    for number, name, *arguments in [*IN_ALL, *REFUSED[topic]] if topic in REFUSED else ():
        try:
            getattr(p, name)(*arguments)
        except OSError as exc:
            if exc.errno != number:
                wrong(p, f"{topic}: {name}{arguments}: {exc.errno}, not {number}")
        else:
            wrong(p, f"{topic}: {name}{arguments} succeeded")
    if topic == "job.validate":
        p.job_subscribe(CURRENT_JOB)
        p.job_aux_set(CURRENT_JOB, "x", p)
        if p.job_aux_get(args["id"], "x") is not p:
            wrong(p, "job_aux_get: another value")
        p.job_aux_delete_value(CURRENT_JOB, p)
        if p.job_aux_get(CURRENT_JOB, "x") is not None:
            wrong(p, "job_aux_get: a value that was deleted")
        p.job_aux_set(CURRENT_JOB, "x", p.handle, lambda h: h.log(6, "api: value freed"))
    if topic == "job.state.depend" and p.call(CURRENT_JOB, "same.answer") != {"answer": args["id"]}:
        wrong(p, "call: another answer")
    if topic == "job.event.start":
        if not p.job_event_posted(CURRENT_JOB, "start"):
            wrong(p, "start was not posted")
        p.job_unsubscribe(CURRENT_JOB)
    if topic == "job.event.finish":
        wrong(p, "an event after job_unsubscribe")
    if topic == "job.state.cleanup" and p.get_job_result(CURRENT_JOB) != 1:
        wrong(p, "get_job_result: not completed")
