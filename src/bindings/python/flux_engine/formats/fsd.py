# SPDX-License-Identifier: LGPL-3.0-or-later
"""Flux Standard Duration (RFC 23)."""

import math
import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_NUMBER = re.compile(
    r"\+?(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]{1,5})?"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?)(ms|s|m|h|d|)"
)
_MAX_LENGTH = 128


def parse(text):
    """Return the seconds of a duration such as ``250ms``, ``1.5h`` or ``inf``. ValueError: it is not one."""
    if type(text) is str and len(text) <= _MAX_LENGTH:
        match = _NUMBER.fullmatch(text)
        if match:
            number, suffix = match.groups()
            value = float.fromhex(number) if "x" in number.lower() else float(number)
            value *= _SECONDS[suffix]
            if not math.isinf(value):
                return value
        elif text.lower() in ("inf", "infinity"):
            return math.inf
    raise ValueError("invalid Flux standard duration")
