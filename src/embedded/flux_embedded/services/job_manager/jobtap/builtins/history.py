"""``.history``: ``job-manager.history.get`` ``{userid?, count?}`` -> ``{jobs: [id, ...]}``, latest first."""


def plugin_init(p):
    p.set_name("history")
    p.service_register("get", get)


def get(p, msg):
    body = msg.body or {}
    userid, count = body.get("userid", msg.userid), body.get("count")
    jm = p._jm
    ids = [job.id for jobs in (jm.jobs, jm.inactive) for job in jobs.values() if job.userid == userid]
    ids.sort(reverse=True)
    p.handle.respond(msg, {"jobs": ids[:count]})
