# SPDX-License-Identifier: LGPL-3.0-or-later
"""Selection of the jobs of a command: users and states."""

import os
import pwd

from flux_engine.command.errors import CommandError
from flux_engine.formats.states import MASKS

#: the userid that stands for all users
ANYONE = 0xFFFFFFFF


def user_id(text):
    """The id of a user: the current one for None, `ANYONE` for ``all``."""
    if text is None:
        return os.getuid()
    if text == "all":
        return ANYONE
    try:
        return int(text) if text.isdigit() else pwd.getpwnam(text).pw_uid
    except KeyError:
        raise CommandError(f"Invalid user {text} specified") from None


def state_mask(text):
    """The bits of a list of states, such as ``pending,run``."""
    mask = 0
    for name in text.lower().split(","):
        if name not in MASKS:
            raise CommandError(f"Invalid state {name} specified")
        mask |= MASKS[name]
    return mask
