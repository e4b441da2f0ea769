# SPDX-License-Identifier: LGPL-3.0-or-later
"""Posts an event before the job is validated."""

from flux.jobtap import CURRENT_JOB


def plugin_init(p):
    p.add_handler("job.create", lambda p, topic, args: p.event_post(CURRENT_JOB, "test-event"))
