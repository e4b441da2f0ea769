# SPDX-License-Identifier: LGPL-3.0-or-later
"""``.post-event``: ``job-manager.post-event.post`` ``{id, name, context?}`` posts an event to a job."""

import errno
import os

from flux_embedded.kernel.message import ROLE_OWNER
from flux_embedded.kernel.service import check_form


def plugin_init(p):
    p.set_name("post-event")
    p.service_register_ex("post", ROLE_OWNER, post)


def post(p, msg):
    body = msg.body
    check_form(body, {"id": int, "name": str, "context?": object}, msg.topic)
    context = body.get("context")
    if "context" in body and not isinstance(context, dict):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    if body["id"] not in p.jobs.active:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    p.event_post(body["id"], body["name"], context)
    p.handle.respond(msg)
