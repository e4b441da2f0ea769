# SPDX-License-Identifier: LGPL-3.0-or-later
"""Pictures of nodes: what is free, and which job holds what.

- ``view.py`` finds out which nodes look alike, and who holds what of them.
- ``text.py`` and ``svg.py`` draw that, for ``flux resource topology`` and the pictures in the
  guide.

Only these two are used from outside: ``render_text()`` and ``render_svg()``.
"""
