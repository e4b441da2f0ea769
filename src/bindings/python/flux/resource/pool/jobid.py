# SPDX-License-Identifier: LGPL-3.0-or-later
"""Job ids as printed by Flux."""

from __future__ import annotations

from typing import Any

from flux.resource.pool.masks import quote

F58_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def base58(value: int) -> str:
    """Return the base 58 digits of an integer >= 0."""
    digits = ""
    while value or not digits:
        value, digit = divmod(value, 58)
        digits = F58_DIGITS[digit] + digits
    return digits


def job_text(jobid: Any) -> str:
    """Return a job id as printed by Flux (F58, RFC 19); for other values, such as -1, the repr."""
    if not isinstance(jobid, int) or jobid < 0:
        return quote(jobid)
    return "\u0192" + base58(int(jobid))
