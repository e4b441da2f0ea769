# SPDX-License-Identifier: LGPL-3.0-or-later
"""``.priority-default``: the priority is the urgency (RFC 30)."""


def plugin_init(p):
    p.add_handler("job.state.priority", priority)
    p.add_handler("job.priority.get", priority)


def priority(p, topic, args):
    return {"priority": args["urgency"]}
