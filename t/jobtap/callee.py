# SPDX-License-Identifier: LGPL-3.0-or-later
"""Answers a topic of another plugin's own."""


def plugin_init(p):
    p.add_handler("test.topic", lambda p, topic, args: {"test": 42})
