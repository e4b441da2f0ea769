# SPDX-License-Identifier: LGPL-3.0-or-later
"""The dependency scheme ``test``: jobs wait until a request removes what they wait for."""

import errno

from flux.jobtap import CURRENT_JOB


def plugin_init(p):
    p.set_name("dependency-test")
    p.add_handler("job.dependency.test", dependency)
    p.add_handler("job.state.depend", depend)
    p.service_register("remove", remove)
    p.service_register("check", check)


def dependency(p, topic, args):
    name = args["dependency"].get("value")
    if not isinstance(name, str):
        p.reject_job("test: the dependency has no value")
    p.job_aux_set(args["id"], name, p)
    p.dependency_add(args["id"], name)
    if args["dependency"].get("remove"):
        p.dependency_remove(args["id"], name)
        p.job_aux_delete(args["id"], name)


def depend(p, topic, args):
    description = args["jobspec"]["attributes"]["system"].get("dependency-test")
    if description:
        try:
            p.dependency_add(CURRENT_JOB, description)
        except OSError as exc:
            p.raise_exception(CURRENT_JOB, "dependency-test", 0, f"dependency_add: {exc}")


def remove(p, msg):
    request = msg.payload
    p.dependency_remove(request["id"], request["description"])
    p.job_aux_delete(request["id"], request["description"])
    p.handle.respond(msg)


def check(p, msg):
    request = msg.payload
    if p.job_aux_get(request["id"], request["name"]) is not p:
        raise OSError(errno.ENOENT, "nothing is attached under this name")
    p.handle.respond(msg)
