# SPDX-License-Identifier: LGPL-3.0-or-later
"""Wants a table [testconfig] with a string testkey in the configuration."""


def plugin_init(p):
    p.add_handler("conf.update", conf_update)


def conf_update(p, topic, args):
    key = args["conf"].get("testconfig", {}).get("testkey")
    if not isinstance(key, str):
        p.error(f"Error parsing [testconfig]: testkey={key!r}: expected a string")
