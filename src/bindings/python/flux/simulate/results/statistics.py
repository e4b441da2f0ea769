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


#: Starts that differ by less are equal, in seconds.
SAME = 1e-3
#: Maximum number of users listed.
NAMED = 3


def against_first(starts, jobs):
    """Return the `losses` of each policy against the first, of the starts per policy; [] if some are
    unknown (None) or of other jobs."""
    if any(len(some or ()) != len(jobs) for some in starts):
        return []
    return [losses(starts[0], some, jobs) for some in starts[1:]]


def losses(first, second, jobs):
    """Compare the starts (NaN: never) of two policies job by job; `jobs` is (user, size) of each.

    Returns:
        dict: ``later``, ``earlier``, ``same``, ``only_first``, ``only_second``, numbers of jobs;
            ``lost``, ``won``, unit seconds of longer and of shorter waits; ``worst``, the largest
            increase of a wait, seconds; ``users``, [[user, net unit seconds lost]], the users with the largest losses
    """
    found = dict.fromkeys(("later", "earlier", "same", "only_first", "only_second"), 0)
    lost, won, worst = [], [], 0.0
    users = {}
    for one, other, (user, size) in zip(first, second, jobs):
        if one != one or other != other:
            found["only_first"] += one == one
            found["only_second"] += other == other
            continue
        more = other - one
        if abs(more) <= SAME:
            found["same"] += 1
            continue
        (lost if more > 0 else won).append(abs(more) * size)
        found["later" if more > 0 else "earlier"] += 1
        worst = max(worst, more)
        if user is not None:
            users[user] = users.get(user, 0.0) + more * size
    most = sorted((user for user in users if users[user] > 0), key=lambda user: -users[user])
    return {
        **found,
        "lost": math.fsum(lost),
        "won": math.fsum(won),
        "worst": worst,
        "users": [[user, users[user]] for user in most[:NAMED]],
    }
