# SPDX-License-Identifier: LGPL-3.0-or-later
"""Requests of commands."""

import os

import flux
from flux_engine.command.errors import CommandError, error_text


def ask(topic, payload=None, what=None, plain=False):
    """Send a request and return its answer; a failure is reported after the description `what`, or the topic.

    With `plain`, only the errno counts, as in a command that flux-core has in C.
    """
    handle = flux.Flux()
    try:
        return handle.rpc(topic, payload).get()
    except OSError as exc:
        text = os.strerror(exc.errno) if plain else error_text(exc)
        raise CommandError(f"{what or topic}: {text}") from None
