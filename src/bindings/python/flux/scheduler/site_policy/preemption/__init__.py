# SPDX-License-Identifier: LGPL-3.0-or-later
"""Preemption: running jobs of a low class are ended so that a waiting job can start.

The docstring of `rule` explains the procedure and the files.
"""

from __future__ import annotations
