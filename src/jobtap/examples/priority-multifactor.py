# SPDX-License-Identifier: LGPL-3.0-or-later
"""Compute the priority from several factors: how long a job has waited, its size, and its user's
share.

    flux jobtap load priority-multifactor.py shares=/etc/flux/shares.json age=1000 size=500
    share=2000

The priority is ``urgency * 1000``, plus for each factor its weight times a number from 0 to 1. For
the age, this is the time since submission divided by `max-age` (seconds; default: a week); for the
size, the number of nodes divided by `max-nodes` (default: 1024); for the share, the number of the
user id in the file `shares`, as in ``{"1001": 0.8}``, or 0.5 for other users.
Every `period` seconds (default: 60) the file is read again if it has changed, and all priorities
are computed anew.
"""

import json
import os

from flux.jobtap import JobtapError, count_resources

DEFAULTS = {"age": 1000, "size": 0, "share": 0, "max-age": 604800, "max-nodes": 1024, "period": 60}


def plugin_init(p):
    p.settings = dict(DEFAULTS)
    for name, value in p.args.items():
        if name == "shares":
            continue
        if name not in DEFAULTS or type(value) not in (int, float) or value < 0:
            names = ", ".join(DEFAULTS)
            raise JobtapError(
                f"{name}={value!r}: expected a number of 0 or more for one of {names}"
            )
        p.settings[name] = value
    p.shares, p.shares_time = {}, None
    read_shares(p)
    p.add_handler("job.state.priority", priority)
    p.add_handler("job.priority.get", priority)
    p.add_handler("plugin.query", lambda p, topic, args: {"shares": p.shares})
    period = p.settings["period"]
    p.handle.timer_watcher_create(period, lambda *args: refresh(p), repeat=period).start()


def read_shares(p):
    """Read the file of shares if it has changed. Raises JobtapError if it cannot be read, or is not
    an object of numbers."""
    path = p.args.get("shares")
    if path is None:
        return
    try:
        changed = os.stat(path).st_mtime_ns
        if changed == p.shares_time:
            return
        with open(path, encoding="utf-8") as file:
            shares = json.load(file)
    except (OSError, ValueError) as exc:
        raise JobtapError(f"{path}: {exc}") from None
    if not isinstance(shares, dict) or not all(
        type(share) in (int, float) and 0 <= share <= 1 for share in shares.values()
    ):
        raise JobtapError(f"{path}: expected an object of numbers from 0 to 1")
    p.shares, p.shares_time = shares, changed


def refresh(p):
    try:
        read_shares(p)
    except JobtapError as exc:
        p.handle.log(4, f"priority-multifactor: {exc}; the shares read before remain in use")
    p.reprioritize_all()


def priority(p, topic, args):
    now = p.handle.reactor_now(p.handle.get_reactor())
    settings = p.settings
    age = min(max(now - args["t_submit"], 0.0) / settings["max-age"], 1.0)
    nodes = count_resources(args["jobspec"]["resources"])["node"] or 1
    size = min(nodes / settings["max-nodes"], 1.0)
    share = p.shares.get(str(args["userid"]), 0.5)
    return {
        "priority": args["urgency"] * 1000
        + int(settings["age"] * age + settings["size"] * size + settings["share"] * share)
    }
