# SPDX-License-Identifier: LGPL-3.0-or-later
"""Options, errors and exit status of commands."""
