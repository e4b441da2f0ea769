# SPDX-License-Identifier: LGPL-3.0-or-later
"""The functions of the interface with arguments good and bad, called from all states of a job."""

import errno

from flux.jobtap import CURRENT_JOB

RESULTS = {"completed": 1, "failed": 2, "canceled": 4, "timeout": 8}


def plugin_init(p):
    p.set_name("api-test")
    p.add_handler("job.new", new)
    p.add_handler("job.validate", validate)
    p.add_handler("job.state.priority", priority)
    p.add_handler("job.state.depend", depend)
    p.add_handler("job.state.sched", sched)
    p.add_handler("job.state.run", run)
    p.add_handler("job.state.cleanup", cleanup)
    p.add_handler("job.state.inactive", check_result)


def failed(p, text):
    p.raise_exception(CURRENT_JOB, "test", 0, text)


def expect(p, topic, number, name, *args):
    """Have ``p.name(*args)`` fail with this errno."""
    try:
        getattr(p, name)(*args)
    except OSError as exc:
        if exc.errno == number:
            return
        failed(p, f"{topic}: {name}{args}: errno={exc.errno} != {number}")
    else:
        failed(p, f"{topic}: {name}{args}: no error")


def option(topic, args, key):
    state = topic[len("job.state.") :] if topic.startswith("job.state.") else topic[len("job.") :]
    return args["jobspec"]["attributes"]["system"].get(state, {}).get(key)


def check_perilog(p, topic, kind):
    start, finish = f"{kind}_start", f"{kind}_finish"
    expect(p, topic, errno.EINVAL, start, None)
    if topic == ("job.state.cleanup" if kind == "prolog" else "job.state.run"):
        expect(p, topic, errno.EINVAL, start, "test")
    expect(p, topic, errno.EINVAL, finish, CURRENT_JOB, None, 0)
    expect(p, topic, errno.ENOENT, finish, 1, "test", 0)


def check_event_post(p, topic, args):
    expect(p, topic, errno.EINVAL, "event_post", 0, None)
    expect(p, topic, errno.ENOENT, "event_post", 0, "foo")
    event = option(topic, args, "post-event")
    if event is not None:
        p.event_post(CURRENT_JOB, event, {"test_context": "yes"})


def check_flags(p, topic, args):
    expect(p, topic, errno.EINVAL, "job_set_flag", 0, None)
    expect(p, topic, errno.ENOENT, "job_set_flag", 0, "debug")
    expect(p, topic, errno.EINVAL, "job_set_flag", CURRENT_JOB, "foo")
    flag = option(topic, args, "set_flag")
    if flag is not None:
        p.job_set_flag(CURRENT_JOB, flag)


def check_lookup(p, topic, args):
    expect(p, topic, errno.ENOENT, "job_lookup", 1234)
    if p.job_lookup(CURRENT_JOB)["id"] != args["id"]:
        failed(p, f"{topic}: job_lookup: not the current job")
    other = args["jobspec"]["attributes"]["system"].get("lookup-id")
    if other is not None and p.job_lookup(other)["id"] != other:
        failed(p, f"{topic}: job_lookup: not {other}")


def check_result(p, topic, args):
    expect(p, topic, errno.ENOENT, "get_job_result", 1234)
    wanted = args["jobspec"]["attributes"]["system"].get("expected-result", "completed")
    result = p.get_job_result(CURRENT_JOB)
    if result != RESULTS[wanted]:
        failed(p, f"{topic}: get_job_result: expected {wanted}, got {result}")


def check_call(p, topic):
    expect(p, topic, errno.ENOENT, "call", 0, "foo", {})
    expect(p, topic, errno.EINVAL, "call", CURRENT_JOB, "job.foo", {})


def new(p, topic, args):
    check_event_post(p, topic, args)
    check_flags(p, topic, args)


def validate(p, topic, args):
    check_event_post(p, topic, args)
    check_lookup(p, topic, args)


def depend(p, topic, args):
    check_flags(p, topic, args)
    check_event_post(p, topic, args)
    check_call(p, topic)
    check_lookup(p, topic, args)


def priority(p, topic, args):
    check_flags(p, topic, args)
    check_event_post(p, topic, args)
    check_call(p, topic)


def sched(p, topic, args):
    check_flags(p, topic, args)
    check_event_post(p, topic, args)


def run(p, topic, args):
    check_flags(p, topic, args)
    expect(p, topic, errno.EINVAL, "get_job_result", CURRENT_JOB)
    check_event_post(p, topic, args)
    check_perilog(p, topic, "prolog")
    check_perilog(p, topic, "epilog")


def cleanup(p, topic, args):
    check_event_post(p, topic, args)
    check_perilog(p, topic, "prolog")
    check_perilog(p, topic, "epilog")
    check_result(p, topic, args)
