# SPDX-License-Identifier: LGPL-3.0-or-later
"""The report of a comparison: one HTML file with SVG charts."""
