# SPDX-License-Identifier: LGPL-3.0-or-later
"""Pictures of nodes, as text and SVG."""
