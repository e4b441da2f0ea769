# SPDX-License-Identifier: LGPL-3.0-or-later
"""Random failures and repairs of nodes."""

import random

from flux.simulate.workload.record import OptionError
from flux_engine.formats import fsd

#: Number of consecutive outages with no running or coming job, after which failures stop: they have
#: no effect any more.
UNSEEN = 1000


class Outages:
    """Independent failures of single nodes; times between failures and to repair are exponentially distributed, with the
    means `mtbf` and `repair` (seconds)."""

    def __init__(self, mtbf, repair, seed=1):
        self.mtbf, self.repair, self.seed = mtbf, repair, seed
        self._unseen = 0

    @classmethod
    def parse(cls, text):
        """Return the outages described by ``mtbf=TIME,repair=TIME[,seed=N]``; times are seconds or
        FSD. Raises OptionError if the text is invalid."""
        values = dict(part.partition("=")[::2] for part in str(text).split(","))
        try:
            seed = int(values.pop("seed", 1))
            mtbf, repair = (float(fsd.parse(values.pop(name))) for name in ("mtbf", "repair"))
        except (KeyError, ValueError):
            values = {"": ""}
        if values or not 0 < mtbf < 1e12 or not 0 < repair < 1e12:
            raise OptionError(
                f"failures {text!r}: expected mtbf=TIME,repair=TIME[,seed=N], times such as 90d and 4h"
            )
        return cls(mtbf, repair, seed)

    def install(self, engine):
        """Let nodes of `engine` (a LeanEngine) fail."""
        for rank in range(engine.machine.nodes):
            # Each node has its own sequence, independent of the other nodes.
            rng = random.Random(f"{self.seed} {rank}")
            engine.at(rng.expovariate(1 / self.mtbf), self._failing(rank, rng))

    def _failing(self, rank, rng):
        bounds = [rank, rank + 1]

        def fail(engine):
            if engine.has_work():
                self._unseen = 0
            else:
                self._unseen += 1
                if not engine.manager.waiting or self._unseen > UNSEEN:
                    return
            engine.take_down(bounds)
            engine.at(engine.now + rng.expovariate(1 / self.repair), come_back)

        def come_back(engine):
            engine.resource.up(bounds)
            engine.at(engine.now + rng.expovariate(1 / self.mtbf), fail)

        return fail
