# SPDX-License-Identifier: LGPL-3.0-or-later
"""Preemption: running jobs of a low class are ended for a waiting job to start.

The docstring of `rule` describes the procedure and the files.
"""

from __future__ import annotations
