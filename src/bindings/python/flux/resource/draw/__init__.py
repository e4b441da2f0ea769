# SPDX-License-Identifier: LGPL-3.0-or-later
"""Pictures of nodes, free units and units of jobs (`render_text`, `render_svg`), for ``flux sched
topology`` and the guide."""
