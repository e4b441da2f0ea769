# SPDX-License-Identifier: LGPL-3.0-or-later
"""Users' estimates: limits for jobs without one.

- ``run``: the run time, as if users knew it
- ``f:F``: the run time times a uniform random number from 1 to F (the f-model)
- ``tsafrir``: after Tsafrir, Etsion and Feitelson (2005): a few round values, the largest most
  often, and uniform accuracy
"""

import bisect

from flux.simulate.workload.record import OptionError
from flux.simulate.workload.text import is_number

#: Round values that most users choose, in seconds.
HEADS = (
    [60 * minutes for minutes in (5, 10, 15, 20, 30, 45)]
    + [3600 * hours for hours in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 18, 24, 36, 48, 72, 96, 168)]
)  # fmt: skip

#: Shares of jobs: that request the maximum, that know their run time, that request a round value.
MOST, EXACT, ROUND = 0.2, 0.1, 0.9


def estimator(text):
    """Return ``limit(run, rng)`` for one of the texts above. Raises OptionError if the text is
    invalid."""
    if text == "run":
        return lambda run, rng: max(run, 1.0)
    if text.startswith("f:"):
        factor = float(text[2:]) if is_number(text[2:]) else 0.0
        if not 1 <= factor < 1e6:
            raise OptionError(f"estimates {text!r}: expected f:F with F at least 1")
        return lambda run, rng: max(run, 1.0) * rng.uniform(1, factor)
    if text == "tsafrir":
        return _popular
    raise OptionError(f"estimates {text!r}: expected none, run, f:F or tsafrir")


def _popular(run, rng):
    longer = HEADS[bisect.bisect_left(HEADS, max(run, 86400)) :]
    most = longer[0] if longer else run
    chance = rng.random()
    if chance < MOST:
        return float(most)
    run = max(run, 1.0)
    wanted = run if chance < MOST + EXACT else min(run / max(rng.random(), 0.01), most)
    if rng.random() < ROUND:
        index = bisect.bisect_left(HEADS, wanted)
        if index < len(HEADS):
            return float(max(run, HEADS[index]))
    return float(max(run, -(-wanted // 60) * 60))
