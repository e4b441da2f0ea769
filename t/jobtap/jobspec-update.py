# SPDX-License-Identifier: LGPL-3.0-or-later
"""Updates the jobspec from callbacks and by request."""

from flux.jobtap import CURRENT_JOB

NAME = "attributes.system.job.name"


def plugin_init(p):
    p.set_name("jobspec-update")
    for topic, name in (("validate", "validated"), ("new", "new"), ("state.priority", "priority")):
        p.add_handler(f"job.{topic}", updater(name))
    p.add_handler("job.update", update)
    p.add_handler("job.state.depend", depend)
    p.add_handler("job.state.run", run)
    p.service_register("update", update_request)


def name_of(args):
    return args["jobspec"]["attributes"]["system"].get("job", {}).get("name")


def fails(function, *args):
    try:
        function(*args)
    except OSError:
        return True
    return False


def rename(p, args, new):
    """Update the job's name to `new`; returns the name before."""
    name = name_of(args)
    if not fails(p.jobspec_update_id, args["id"], {"attributes.system.foo": "bar"}):
        p.reject_job("jobspec_update_id of the current job succeeded")
    p.jobspec_update({NAME: new})
    if name_of(args) != name:
        p.reject_job("the name has changed before the callback returned")
    if not fails(p.jobspec_update, {"foo.bar": "baz"}):
        p.reject_job("an update beside the attributes succeeded")
    p.jobspec_update({"attributes.system.update-test": 1})
    return name


def updater(name):
    def callback(p, topic, args):
        rename(p, args, name)

    return callback


def update(p, topic, args):
    if not args["updates"]:
        p.reject_job("job.update: no updates")


def depend(p, topic, args):
    name = rename(p, args, "depend")
    if name != "new":
        p.raise_exception(CURRENT_JOB, "jobspec-update", 0, f"the job's name is {name}, not new")


def run(p, topic, args):
    if not fails(p.jobspec_update, {"attributes.system.run-update": 1}):
        p.raise_exception(CURRENT_JOB, "jobspec-update", 0, "an update in RUN state succeeded")


def update_request(p, msg):
    request = msg.payload
    try:
        p.jobspec_update_id(request["id"], request["update"])
    except OSError as exc:
        p.raise_exception(request["id"], "test", 0, f"update failed: {exc}")
    p.handle.respond(msg)
