# SPDX-License-Identifier: LGPL-3.0-or-later
"""``.history``: ``job-manager.history.get`` ``{slice}`` -> ``{jobs: [id, ...]}``: the sender's own jobs, latest first.

The slice is written as in Python, in brackets: ``[0:1]`` is the latest, ``[::-1]`` all of them, oldest first.
"""

import errno
import re

from flux_embedded.kernel.service import check_form

SLICE = re.compile(r"\[\s*([+-]?[0-9]+)?:\s*([+-]?[0-9]+)?(?::\s*([+-]?[0-9]+)?)?\]")


def plugin_init(p):
    p.set_name("history")
    p.service_register("get", get)


def get(p, msg):
    check_form(msg.body, {"slice": str}, msg.topic)
    match = SLICE.fullmatch(msg.body["slice"])
    parts = [int(part) if part else None for part in match.groups()] if match else []
    if not match or parts[2] == 0:
        raise OSError(errno.EINVAL, "could not parse python-style slice expression")
    jobs = [*p.jobs.active.values(), *p.jobs.inactive.values()]
    ids = sorted((job.id for job in jobs if job.userid == msg.userid), reverse=True)
    p.handle.respond(msg, {"jobs": ids[slice(*parts)]})
