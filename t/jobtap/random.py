# SPDX-License-Identifier: LGPL-3.0-or-later
"""A priority at random, and another one every second."""

import random


def plugin_init(p):
    p.set_name("random")
    p.add_handler("job.state.priority", priority)
    p.add_handler("job.priority.get", priority)
    p.handle.timer_watcher_create(1.0, lambda *args: p.reprioritize_all(), repeat=1.0).start()


def priority(p, topic, args):
    return {"priority": random.randrange(1 << 31)}
