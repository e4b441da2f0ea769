# SPDX-License-Identifier: LGPL-3.0-or-later
"""Access control for queues: ``policy.access`` of RFC 33, which Flux itself does not enforce.

    [queues.debug.policy.access]
    allow-user = ["alice"]
    allow-group = ["staff"]

The users listed, members of the groups listed, and the instance owner may submit to the queue or move jobs there. Without
the table all users may. A virtual queue without one has its parent's; ``[policy.access]`` applies to queues without any, and to
an instance without queues. The groups of a user are cached until the configuration is reloaded.
"""

import grp
import os
import pwd


def plugin_init(p):
    p.rules = {}  # queue (None: the others) -> users and groups allowed; no entry: all users
    p.groups = {}  # user id -> names of the user and of the groups
    p.add_handler("conf.update", conf_update)
    p.add_handler("job.validate", validate)


def conf_update(p, topic, args):
    conf = args["conf"]
    queues = conf.get("queues", {})
    rules = {None: rule_of(p, "", conf)}
    for name, queue in queues.items():
        rules[name] = rule_of(p, f"queues.{name}.", queue)
        if rules[name] is None and queue.get("parent") in queues:
            parent = queue["parent"]
            rules[name] = rule_of(p, f"queues.{parent}.", queues[parent])
    p.rules = {name: rule or rules[None] for name, rule in rules.items()}
    p.groups = {}


def rule_of(p, where, table):
    """The users and groups that a table allows; None: it has no such rule."""
    access = table.get("policy", {}).get("access", {})
    allowed = []
    for key in ("allow-user", "allow-group"):
        names = access.get(key, [])
        if not isinstance(names, (list, tuple)) or not all(isinstance(one, str) for one in names):
            p.error(f"{where}policy.access.{key}={names!r}: expected a list of names")
        allowed.append(frozenset(names))
    return tuple(allowed) if access else None


def names_of(p, userid):
    if userid not in p.groups:
        try:
            user = pwd.getpwuid(userid)
        except KeyError:
            return str(userid), frozenset()
        names = set()
        for gid in os.getgrouplist(user.pw_name, user.pw_gid):
            try:
                names.add(grp.getgrgid(gid).gr_name)
            except KeyError:
                names.add(str(gid))
        p.groups[userid] = user.pw_name, frozenset(names)
    return p.groups[userid]


def validate(p, topic, args):
    queue = args["jobspec"]["attributes"]["system"].get("queue")
    rule = p.rules.get(queue)  # none for a queue made since the last configuration
    if rule is None or args["userid"] == os.getuid():
        return
    user, groups = names_of(p, args["userid"])
    if user not in rule[0] and not groups & rule[1]:
        p.reject_job(
            f"user {user} may not submit to {f'queue {queue}' if queue else 'this instance'}"
        )
