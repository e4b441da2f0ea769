# SPDX-License-Identifier: LGPL-3.0-or-later
"""``.validate-duration``: no job may be longer than the instance will live."""

import errno
import json

from flux_embedded.formats import fsd


def plugin_init(p):
    p.expiration = 0.0
    p.add_handler("job.validate", validate)
    watch_instance(p)


def watch_instance(p):
    """Keep the instance's expiration up to date: the one of ``resource.R``."""
    from flux_embedded.kernel.handle import RPC_STREAMING

    request = {"key": "resource.R", "waitcreate": True, "full": True}
    p.handle.rpc_object("kvs.watch", request, RPC_STREAMING).then(changed, p)


def changed(future, p):
    try:
        R = json.loads(future.body["value"])
        p.expiration = float(R["execution"].get("expiration") or 0.0)
    except OSError as exc:
        if exc.errno == errno.ENOENT:
            p.expiration = 0.0
        return
    except (ValueError, KeyError, TypeError):
        p.expiration = 0.0
    future.reset()


def validate(p, topic, args):
    if not p.expiration:
        return
    duration = args["jobspec"]["attributes"]["system"].get("duration", 0)
    left = p.expiration - p.handle.reactor_now(p.handle.get_reactor())
    if duration > left:
        p.reject_job(
            f"job duration ({fsd.encode(duration)}) exceeds remaining instance lifetime ({fsd.encode(max(left, 0.0))})"
        )
