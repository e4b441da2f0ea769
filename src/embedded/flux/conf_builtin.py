"""What is built in: paths, as ``flux config builtin`` prints them."""

from flux_embedded.cmd.config import BUILTIN

__all__ = ["conf_builtin_get"]


def conf_builtin_get(name, which="auto"):
    """Return a value by name.

    Args:
        name (str): such as ``rc1_path``
        which (str): ``installed``, ``intree`` or ``auto``: one and the same here

    Raises:
        ValueError: no such value, or another `which`
    """
    if which not in ("auto", "installed", "intree"):
        raise ValueError("which must be one of auto, installed, or intree")
    if name not in BUILTIN:
        raise ValueError(f"No builtin config value for '{name}'")
    return BUILTIN[name]
