# SPDX-License-Identifier: LGPL-3.0-or-later
"""What this host is."""

from flux_scheduler_version import VERSION

#: the release of flux-core whose commands, messages and events these are
HOST_VERSION = "0.88.0"


def bindings_version():
    """The release of flux-python that the bindings are, or None where it cannot be told."""
    from importlib import metadata

    try:
        return metadata.version("flux-python")
    except metadata.PackageNotFoundError:
        return None


def describe():
    """One line for people."""
    bindings = bindings_version()
    over = f", on flux-python {bindings}" if bindings else ""
    return f"embedded host of flux-scheduler {VERSION}{over}"
