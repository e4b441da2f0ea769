"""``flux start``: see `flux_embedded.broker.start`."""

from flux_embedded.broker.start import main

__all__ = ["main"]
