# SPDX-License-Identifier: LGPL-3.0-or-later
"""Data attached to jobs: set, read, deleted; freed when the job ends or the plugin goes."""

import errno

from flux.jobtap import CURRENT_JOB


def plugin_init(p):
    p.add_handler("job.validate", validate)
    p.add_handler("job.state.depend", depend)


def try_all(p, id):
    """Text of what went wrong, or None."""
    p.job_aux_set(id, "foo", p)
    if p.job_aux_get(id, "foo") is not p:
        return "job_aux_get gave something else"
    p.job_aux_delete_value(id, p)
    if p.job_aux_get(id, "foo") is not None:
        return "job_aux_get after job_aux_delete_value gave something"
    return None


def validate(p, topic, args):
    try:
        p.job_aux_set(1234, "foo", p)
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            p.reject_job(f"job_aux_set(1234): {exc}")
    else:
        p.reject_job("job_aux_set(1234) succeeded")
    wrong = try_all(p, CURRENT_JOB)
    if wrong:
        p.reject_job(wrong)


def depend(p, topic, args):
    wrong = try_all(p, args["id"])
    if wrong:
        p.raise_exception(CURRENT_JOB, "test", 0, wrong)
    p.job_aux_set(args["id"], "foo", p.handle, cleanup)


def cleanup(handle):
    handle.log(6, "job_aux test destructor invoked")
