# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux simulate``: the command is in `flux.simulate.command`."""

from flux.simulate.command import main

__all__ = ["main"]
