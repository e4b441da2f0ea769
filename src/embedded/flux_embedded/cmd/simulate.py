# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux simulate``: the command is in `flux_embedded.simulate.command`."""

from flux_embedded.simulate.command import main

__all__ = ["main"]
