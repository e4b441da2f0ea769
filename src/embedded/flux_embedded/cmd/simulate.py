"""``flux simulate``: the command is in `flux_embedded.simulate.command`."""

from flux_embedded.simulate.command import main

__all__ = ["main"]
