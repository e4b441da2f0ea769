# SPDX-License-Identifier: LGPL-3.0-or-later
"""Versions of this host."""

from importlib import metadata

from flux_scheduler_version import VERSION

#: the release of flux-core that commands, messages and events follow
HOST_VERSION = "0.88.0"


def describe():
    try:
        over = f", on flux-python {metadata.version('flux-python')}"
    except metadata.PackageNotFoundError:
        over = ""
    return f"embedded host of flux-scheduler {VERSION}{over}"
