# SPDX-License-Identifier: LGPL-3.0-or-later
"""Pictures of nodes: free units, and the units of each job.

- ``view.py`` groups nodes that look alike, with the jobs on them.
- ``text.py`` and ``svg.py`` draw that, for ``flux resource topology`` and the pictures in the
  guide.

Only these two are used from outside: ``render_text()`` and ``render_svg()``.
"""
