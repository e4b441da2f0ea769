# SPDX-License-Identifier: LGPL-3.0-or-later
"""``.update-duration``: update of attributes.system.duration.

The instance owner may go beyond limits; others may only stay within them, and may not change the
duration of a job that runs.
"""

from flux_embedded.formats.states import RUN
from flux_embedded.kernel.message import ROLE_OWNER

KEY = "attributes.system.duration"


def plugin_init(p):
    p.add_handler(f"job.update.{KEY}", update)


def update(p, topic, args):
    duration = args["updates"][KEY]
    if type(duration) not in (int, float):
        p.error("plugin args unpack failed")
    if not 0 <= duration < float("inf"):
        p.error("duration must not be negative")
    if not args["cred"]["rolemask"] & ROLE_OWNER:
        if args["state"] == RUN:
            p.error("only the instance owner can update the duration of a running job")
        return None
    return {"validated": True}
