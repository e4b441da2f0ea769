"""``raw``: the C library by name.  Here there is none: the constants are there, and no functions."""

from flux import constants
from flux.wrapper import MissingFunctionError

__all__ = ["raw"]


class Core:
    """Constants by name, with or without ``FLUX_``.

    Any other name is a function, as it is on a real Flux, and calling it raises MissingFunctionError.
    """

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        for full in (name, f"FLUX_{name}"):
            if hasattr(constants, full):
                return getattr(constants, full)

        def missing(*args):
            raise MissingFunctionError(
                f"{name}: the embedded instance has no C library; its calls are methods of flux.Flux"
            )

        return missing


raw = Core()
