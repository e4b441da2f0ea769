# SPDX-License-Identifier: LGPL-3.0-or-later
"""Means of several runs, and the significance of differences."""

import math

#: t(0.975, n) for n = 1, 2, ... degrees of freedom, and for some larger n.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
    2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
    2.045, 2.042,
)  # fmt: skip
_T_MORE = ((120, 1.980), (60, 2.000), (40, 2.021), (0, _T[-1]))


def t_value(degrees):
    """Return t(0.975) for a number of degrees of freedom, rounded up."""
    if degrees <= len(_T):
        return _T[degrees - 1]
    return next(value for least, value in _T_MORE if degrees >= least)


def interval(values):
    """Return (mean, half-width of its 95 % interval) of a sample; the width of fewer than two
    values is NaN."""
    count = len(values)
    if not count:
        return math.nan, math.nan
    middle = math.fsum(values) / count
    if count < 2:
        return middle, math.nan
    spread = math.fsum((value - middle) ** 2 for value in values) / (count - 1)
    return middle, t_value(count - 1) * math.sqrt(spread / count)


def paired(first, second):
    """Return the `interval` of second minus first, pair by pair."""
    return interval([b - a for a, b in zip(first, second)])


def verdict(first, second):
    """Return "more", "less" or "no difference" for second against first, at 95 %; "one run" if there is no interval."""
    middle, width = paired(first, second)
    if width != width:
        return "one run"
    if not abs(middle) > width:
        return "no difference"
    return "more" if middle > 0 else "less"
