"""Where configuration of users lies."""

import os
from pathlib import Path


def xdg_searchpath(subdir=""):
    """Directories with Flux configuration of the XDG base directories, the user's first.

    Args:
        subdir (str): below ``flux`` in each of them
    """
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    others = (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    return [Path(directory, "flux", subdir) for directory in (home, *others)]
