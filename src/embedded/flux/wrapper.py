"""Errors of calls that the C library, where there is one, cannot be given."""

from flux_embedded.kernel.message import InvalidArguments

__all__ = ["InvalidArguments", "MissingFunctionError", "WrongNumArguments"]


class MissingFunctionError(Exception):
    """There is no function of that name."""


class WrongNumArguments(ValueError):
    """A function takes another number of arguments."""
