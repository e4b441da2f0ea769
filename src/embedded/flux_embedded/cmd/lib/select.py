# SPDX-License-Identifier: LGPL-3.0-or-later
"""Selection of the jobs of a command by their states."""

from flux_engine.command.errors import CommandError
from flux_engine.formats.states import MASKS


def state_mask(text):
    """The bits of a list of states, such as ``pending,run``."""
    mask = 0
    for name in text.lower().split(","):
        if name not in MASKS:
            raise CommandError(f"Invalid state {name} specified")
        mask |= MASKS[name]
    return mask
