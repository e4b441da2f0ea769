# SPDX-License-Identifier: LGPL-3.0-or-later
"""The page about a comparison: one HTML file with charts in SVG, drawn here."""
