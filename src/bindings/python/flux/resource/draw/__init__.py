# SPDX-License-Identifier: LGPL-3.0-or-later
"""Pictures of nodes: free units, and units of jobs.

- ``view.py`` groups nodes that look alike, with their jobs.
- ``text.py`` and ``svg.py`` draw them, for ``flux sched topology`` and the guide.

Interface: ``render_text()`` and ``render_svg()``.
"""
