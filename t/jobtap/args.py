# SPDX-License-Identifier: LGPL-3.0-or-later
"""Every callback gets the args that the interface promises; says so in the log."""

from flux.jobtap import CURRENT_JOB

ALWAYS = ("id", "userid", "urgency", "priority", "state", "t_submit")


def plugin_init(p):
    p.set_name("args")
    p.add_handler("job.*", check)


def check(p, topic, args):
    if topic == "job.new":
        p.job_subscribe(CURRENT_JOB)
    wrong = [key for key in ALWAYS if key not in args]
    if not args["jobspec"]["resources"] or args["t_submit"] == 0:
        wrong.append("jobspec or t_submit")
    if topic.startswith("job.state.") and not ("entry" in args and "prev_state" in args):
        wrong.append("entry or prev_state")
    if wrong:
        p.handle.log(3, f"args-check: {topic}: {wrong}")
        return -1
    p.handle.log(6, f"args-check: {topic}: OK")
    return 0
