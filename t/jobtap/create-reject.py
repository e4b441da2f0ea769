# SPDX-License-Identifier: LGPL-3.0-or-later
"""Rejects every job, as early as can be."""


def plugin_init(p):
    p.add_handler("job.create", lambda p, topic, args: p.reject_job("nope"))
