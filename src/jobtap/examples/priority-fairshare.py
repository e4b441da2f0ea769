# SPDX-License-Identifier: LGPL-3.0-or-later
"""Priority by fair share: users below their share come first.

    flux jobtap load priority-fairshare.py half-life=604800 shares=/etc/flux/shares.json weight=10000

Usage is core seconds of jobs that ran, with a half-life of `half-life` seconds (a week by default). The
file `shares` gives weights by userid: ``{"1001": 3, "1002": 1}``; a user not in it has 1. The fair-share factor of a user is
``2 ** -(part of the usage / part of the shares)``: 1 without usage, 0.5 for a user who has used exactly their share. The priority is
``urgency * 100000`` and `weight` times the factor. Every `period` seconds (600) all priorities are computed again.
"""

import json

from flux.jobtap import JobtapError, count_resources

DEFAULTS = {"half-life": 604800, "weight": 10000, "period": 600}


def plugin_init(p):
    p.settings = dict(DEFAULTS)
    for name, value in p.args.items():
        if name == "shares":
            continue
        if name not in DEFAULTS or type(value) not in (int, float) or value <= 0:
            raise JobtapError(
                f"{name}={value!r}: expected shares=FILE or one of {', '.join(DEFAULTS)}, above 0"
            )
        p.settings[name] = value
    p.shares = read_shares(p.args.get("shares"))
    #: userid -> (core seconds, time of the count), and job id -> (userid, cores, start) of running jobs
    p.usage, p.running = {}, {}
    p.known = (None, {})
    p.add_handler("job.state.priority", priority)
    p.add_handler("job.priority.get", priority)
    p.add_handler("job.state.run", began)
    p.add_handler("job.state.cleanup", ended)
    p.add_handler("plugin.query", query)
    period = p.settings["period"]
    p.handle.timer_watcher_create(period, lambda *args: p.reprioritize_all(), repeat=period).start()


def read_shares(path):
    """The weights in a file; {} without one. Raises JobtapError if the file cannot be read, or is
    not an object of numbers above 0."""
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            shares = json.load(file)
    except (OSError, ValueError) as exc:
        raise JobtapError(f"{path}: {exc}") from None
    if not isinstance(shares, dict) or not all(
        type(share) in (int, float) and share > 0 for share in shares.values()
    ):
        raise JobtapError(f"{path}: expected an object of numbers above 0, by userid")
    return shares


def now(p):
    return p.handle.reactor_now(p.handle.get_reactor())


def began(p, topic, args):
    p.running[args["id"]] = (
        args["userid"],
        count_resources(args["jobspec"]["resources"])["core"],
        now(p),
    )


def ended(p, topic, args):
    job = p.running.pop(args["id"], None)
    if job is not None:
        userid, cores, start = job
        p.usage[userid] = (decayed(p, userid) + cores * (now(p) - start), now(p))


def decayed(p, userid):
    """The usage of a user's ended jobs, decayed to the present."""
    used, when = p.usage.get(userid, (0.0, 0.0))
    return used * 2 ** -((now(p) - when) / p.settings["half-life"])


def usages(p):
    """{userid: usage}, running jobs included; computed once for all jobs prioritized at the same time."""
    if p.known[0] != now(p):
        found = {userid: decayed(p, userid) for userid in p.usage}
        for userid, cores, start in p.running.values():
            found[userid] = found.get(userid, 0.0) + cores * (now(p) - start)
        p.known = (now(p), found)
    return p.known[1]


def factor(p, userid):
    used = usages(p)
    total = sum(used.values())
    if total <= 0:
        return 1.0
    shares = {one: p.shares.get(str(one), 1) for one in {userid, *used}}
    return 2 ** -((used.get(userid, 0.0) / total) / (shares[userid] / sum(shares.values())))


def priority(p, topic, args):
    share = p.settings["weight"] * factor(p, args["userid"])
    return {"priority": args["urgency"] * 100000 + int(share)}


def query(p, topic, args):
    return {"factors": {str(userid): factor(p, userid) for userid in usages(p)}}
