# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs wait in PRIORITY until a request names their priority."""

import errno


def plugin_init(p):
    p.set_name("priority-wait")
    for topic in ("job.state.priority", "job.priority.get"):
        p.add_handler(topic, lambda p, topic, args: p.priority_unavail(args))
    p.service_register("release", release)


def release(p, msg):
    request = msg.payload
    if not 0 <= request["priority"] <= 4294967295:
        raise OSError(errno.EINVAL, "no such priority")
    p.reprioritize_job(request["id"], request["priority"])
    p.handle.respond(msg)
