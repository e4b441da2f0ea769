# SPDX-License-Identifier: LGPL-3.0-or-later
"""Start of the test personality kvs: a key-value store and nothing else."""


def setup(context):
    context.load_modules(["content", "content-sqlite", "heartbeat", "kvs", "kvs-watch"])
