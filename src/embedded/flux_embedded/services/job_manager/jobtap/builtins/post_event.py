"""``.post-event``: ``job-manager.post-event.post`` ``{id, name, context?}`` posts an event to a job."""

import errno
import os

from flux_embedded.kernel.message import ROLE_OWNER


def plugin_init(p):
    p.set_name("post-event")
    p.service_register_ex("post", ROLE_OWNER, post)


def post(p, msg):
    body = msg.body or {}
    if type(body.get("id")) is not int or type(body.get("name")) is not str:
        raise OSError(errno.EPROTO, "id must be an integer and name a string")
    context = body.get("context")
    if context is not None and not isinstance(context, dict):
        raise OSError(errno.EPROTO, "context must be an object")
    if body["id"] not in p.jm.jobs:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    p.event_post(body["id"], body["name"], context)
    p.handle.respond(msg)
