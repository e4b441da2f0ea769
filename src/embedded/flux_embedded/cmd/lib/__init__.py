# SPDX-License-Identifier: LGPL-3.0-or-later
"""What several commands share: option parsing, connecting, output formats, jobspecs."""
