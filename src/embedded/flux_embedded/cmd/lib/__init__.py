# SPDX-License-Identifier: LGPL-3.0-or-later
"""Shared by several commands: option parsing, connecting, output formats, jobspecs."""
