# SPDX-License-Identifier: LGPL-3.0-or-later
"""Events of a job come to those who subscribe, and no longer once they unsubscribe."""

import errno

from flux.jobtap import CURRENT_JOB


def plugin_init(p):
    p.set_name("subscribe-test")
    p.add_handler("job.event.*", event)
    p.add_handler("job.validate", validate)


def fails(number, function, *args):
    try:
        function(*args)
    except OSError as exc:
        return exc.errno == number
    return False


def event(p, topic, args):
    if topic == "job.event.start":
        if not fails(errno.EINVAL, p.job_event_posted, CURRENT_JOB, None) or not fails(
            errno.ENOENT, p.job_event_posted, 0, "start"
        ):
            p.raise_exception(CURRENT_JOB, "subscribe-test", 0, "bad arguments were accepted")
        if not p.job_event_posted(CURRENT_JOB, "start"):
            p.raise_exception(CURRENT_JOB, "subscribe-test", 0, "start was not posted")
        p.job_unsubscribe(CURRENT_JOB)
    elif topic == "job.event.finish":
        p.raise_exception(CURRENT_JOB, "subscribe-test", 0, "unexpectedly got finish event")
        return -1
    p.handle.log(6, f"subscribe-check: {topic}: OK")
    return -1 if topic == "job.event.start" else 0


def validate(p, topic, args):
    p.job_unsubscribe(0)
    if not fails(errno.ENOENT, p.job_subscribe, 0):
        p.reject_job("subscribe-test: an unknown job can be subscribed to")
    p.job_subscribe(CURRENT_JOB)
