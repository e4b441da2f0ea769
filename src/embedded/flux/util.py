"""Helpers for commands and scripts."""

from flux_embedded.formats import fsd as _fsd

__all__ = ["fsd", "parse_fsd", "set_treedict"]


def parse_fsd(text):
    """Return the seconds (float) of a Flux Standard Duration such as ``1.5h`` (RFC 23).

    Raises:
        ValueError: ``invalid Flux standard duration``
    """
    return _fsd.parse(text)


def fsd(seconds):
    """Return a duration for people, such as ``59.95m``."""
    return _fsd.encode(seconds)


def set_treedict(tree, key, value):
    """Set a dotted key in nested dicts, making those on the way.

    Raises:
        ValueError: something on the way is not a dict
    """
    *path, last = key.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ValueError(f"{key}: {part} is not an object")
    tree[last] = value
