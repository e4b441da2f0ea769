# SPDX-License-Identifier: LGPL-3.0-or-later
"""The requests every module answers without any code of its own (RFC 5).

``NAME.ping`` (guests too), ``NAME.debug``, ``NAME.stats-get``, ``NAME.stats-clear``, ``NAME.config-reload``,
``NAME.disconnect`` and ``NAME.shutdown``. A module's own handler for one of them comes first.
"""

import errno
import os

from flux_engine.kernel import message

#: Key of the debug word in `Listener.aux`, which ``flux module debug`` changes.
DEBUG_FLAGS = "debug_flags"


def ping(task, msg):
    """Return the payload, with the sender's credentials as the module saw them."""
    try:
        body = msg.body
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
    rank = 0 if msg.nodeid == message.NODEID_ANY else msg.nodeid
    return {**body, "userid": msg.userid, "rolemask": msg.rolemask, "rank": rank}


def debug(task, msg):
    """``{op: setbit|clrbit, flags}`` -> ``{flags}``: change the debug word, and return it."""
    body = msg.body or {}
    op, flags = body.get("op"), body.get("flags", 0)
    word = task.aux.get(DEBUG_FLAGS, 0)
    if not isinstance(flags, int) or flags < 0:
        raise OSError(errno.EPROTO, f"{msg.topic}: flags must be a number, not {flags!r}")
    if op == "setbit":
        word |= flags
    elif op == "clrbit":
        word &= ~flags
    else:
        raise OSError(errno.EPROTO, f"{msg.topic}: op={op!r}: expected setbit or clrbit")
    task.aux[DEBUG_FLAGS] = word
    return {"flags": word}


def stats(task, msg):
    """The answer of a module without statistics: message counts, which are all 0 here."""
    none = dict.fromkeys(("request", "response", "event", "control"), 0)
    return {"tx": none, "rx": none}


#: method -> (function of task and message that returns the payload, guests allowed)
METHODS = {
    "ping": (ping, True),
    "debug": (debug, False),
    "stats-get": (stats, True),
    "stats-clear": (lambda task, msg: None, False),
    "config-reload": (lambda task, msg: None, False),
    "disconnect": (lambda task, msg: None, True),
    "shutdown": (lambda task, msg: task.shut_down(), False),
}
