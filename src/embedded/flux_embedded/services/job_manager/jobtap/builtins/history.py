"""``.history``: ``job-manager.history.get`` ``{userid?, count?}`` -> ``{jobs: [id, ...]}``, latest first.

userid defaults to the sender's; 4294967295 stands for all users, which only the owner may ask for.
"""

import errno

ANY_USER = 0xFFFFFFFF


def plugin_init(p):
    p.set_name("history")
    p.service_register("get", get)


def get(p, msg):
    body = msg.body or {}
    userid, count = body.get("userid", msg.userid), body.get("count")
    if msg.is_guest and userid != msg.userid:
        raise OSError(errno.EPERM, "guests can only see their own history")
    everybody = userid == ANY_USER
    jobs = [*p.jm.jobs.values(), *p.jm.inactive.values()]
    ids = [job.id for job in jobs if everybody or job.userid == userid]
    ids.sort(reverse=True)
    p.handle.respond(msg, {"jobs": ids[:count]})
