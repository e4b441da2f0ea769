# SPDX-License-Identifier: LGPL-3.0-or-later
"""Rejects the jobs that ask for it."""


def plugin_init(p):
    p.set_name("test-validate")
    p.add_handler("job.validate", validate)


def validate(p, topic, args):
    number = args["jobspec"]["attributes"]["system"].get("jobtap", {}).get("validate-test-id")
    if number == 4:
        p.reject_job(f"Job had reject_id == {number} jobid={args['id']}")
