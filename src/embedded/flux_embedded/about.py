# SPDX-License-Identifier: LGPL-3.0-or-later
"""Versions of this host."""

from flux_scheduler_version import VERSION

#: the release of flux-core that commands, messages and events follow
HOST_VERSION = "0.88.0"


def bindings_version():
    """The release of the bindings, flux-python; None if it is unknown."""
    from importlib import metadata

    try:
        return metadata.version("flux-python")
    except metadata.PackageNotFoundError:
        return None


def describe():
    """One line of text for users."""
    bindings = bindings_version()
    over = f", on flux-python {bindings}" if bindings else ""
    return f"embedded host of flux-scheduler {VERSION}{over}"
