# SPDX-License-Identifier: LGPL-3.0-or-later
"""Job ids as printed by Flux."""

from __future__ import annotations

from typing import Any

from flux.resource.pool.masks import quote

_F58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def job_text(jobid: Any) -> str:
    """Return a job id as printed by Flux (F58, RFC 19); for other values, such as -1, the repr."""
    if not isinstance(jobid, int) or jobid < 0:
        return quote(jobid)
    value = int(jobid)
    text = ""
    while value or not text:
        value, digit = divmod(value, 58)
        text = _F58[digit] + text
    return "\u0192" + text
