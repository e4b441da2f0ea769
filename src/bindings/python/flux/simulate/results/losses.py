# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs and users that wait longer under one policy than under another: a better mean may hide
them."""

import math

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
