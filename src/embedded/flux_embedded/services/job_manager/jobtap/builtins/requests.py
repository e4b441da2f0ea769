# SPDX-License-Identifier: LGPL-3.0-or-later
"""``.history`` and ``.post-event``: requests that a real job manager has from plugins.

``job-manager.history.get`` ``{slice}`` -> ``{jobs: [id, ...]}``: the sender's own jobs, latest first. The slice is written as
in Python, in brackets: ``[0:1]`` is the latest, ``[::-1]`` all of them, oldest first.
``job-manager.post-event.post`` ``{id, name, context?}`` posts an event to a job.
"""

import errno
import os
import re

from flux_engine.kernel.message import ROLE_OWNER
from flux_engine.kernel.service import check_form

SLICE = re.compile(r"\[\s*([+-]?[0-9]+)?:\s*([+-]?[0-9]+)?(?::\s*([+-]?[0-9]+)?)?\]")


def history_init(p):
    p.set_name("history")
    p.service_register("get", history)


def history(p, msg):
    check_form(msg.body, {"slice": str}, msg.topic)
    match = SLICE.fullmatch(msg.body["slice"])
    parts = [int(part) if part else None for part in match.groups()] if match else []
    if not match or parts[2] == 0:
        raise OSError(errno.EINVAL, "could not parse python-style slice expression")
    jobs = [*p.jobs.active.values(), *p.jobs.inactive.values()]
    ids = sorted((job.id for job in jobs if job.userid == msg.userid), reverse=True)
    p.handle.respond(msg, {"jobs": ids[slice(*parts)]})


def post_event_init(p):
    p.set_name("post-event")
    p.service_register_ex("post", ROLE_OWNER, post_event)


def post_event(p, msg):
    body = msg.body
    check_form(body, {"id": int, "name": str, "context?": object}, msg.topic)
    context = body.get("context")
    if "context" in body and not isinstance(context, dict):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    if body["id"] not in p.jobs.active:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    p.event_post(body["id"], body["name"], context)
    p.handle.respond(msg)
