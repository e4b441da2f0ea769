# SPDX-License-Identifier: LGPL-3.0-or-later
"""The version of this project; configure, the commands, the documentation and the packages take it from this file.

A module of its own, beside the package ``flux``: asking for the version then imports nothing else, and the embedded instance,
which imports no scheduler, can ask too.
"""

VERSION = "0.1.0"
