# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux start``: see `flux_embedded.broker.start`."""

from flux_embedded.broker.start import main

__all__ = ["main"]
