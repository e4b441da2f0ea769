# SPDX-License-Identifier: LGPL-3.0-or-later
"""Preemption: running jobs of a low class are ended so that a waiting job can start.

`rule` says how it goes, and which file does what.
"""

from __future__ import annotations
