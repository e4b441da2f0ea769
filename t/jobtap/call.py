# SPDX-License-Identifier: LGPL-3.0-or-later
"""Calls a topic that callee.py answers."""

from flux.jobtap import CURRENT_JOB


def plugin_init(p):
    p.add_handler("job.state.depend", depend)


def depend(p, topic, args):
    answer = p.call(CURRENT_JOB, "test.topic", args)
    if answer.get("test") != 42:
        p.raise_exception(CURRENT_JOB, "test", 0, f"expected 42, got {answer}")
