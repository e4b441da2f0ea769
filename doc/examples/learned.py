# SPDX-License-Identifier: LGPL-3.0-or-later
"""A rank that was learned: trained in flux.simulate.gym, loaded with sched-backfill rank=learned.py:rank."""

import json
import math
from pathlib import Path

#: The trained weights: for the wait, the limit and the size.
FILE = Path(__file__).with_suffix(".json")
WEIGHTS = json.loads(FILE.read_text()) if FILE.exists() else [0.0, 0.0, 0.0]
LONG = 30 * 86400.0


def scaled(seconds):
    """Scale times as the environment does."""
    return min(math.log1p(max(seconds, 0.0)) / math.log1p(LONG), 1.0)


def rank(scheduler, job):
    """The rank of a job, the smallest first; passed to rank= by its name."""
    request = job.resource_request
    wait = scaled(scheduler.now() - job.t_submit)
    limit = scaled(request.duration) if request.duration else 1.0
    return WEIGHTS[0] * wait + WEIGHTS[1] * limit + WEIGHTS[2] * math.log2(request.ncores)


def train(trace, generations=8, population=16, best=4, seed=1):
    """Weights by the cross-entropy method, on episodes from the first half of a trace."""
    import numpy as np

    from flux.simulate.gym import SchedulingEnv

    env = SchedulingEnv(trace, k=16, jobs=256, reward="slowdown", part=(0.0, 0.5))
    units = trace.workload().units
    random = np.random.default_rng(seed)
    mean, spread = np.zeros(3), np.ones(3)

    def play(weights, episode):
        seen, info = env.reset(seed=episode)
        total, over = 0.0, False
        while not over:
            sizes = np.log2(np.maximum(seen[:, 4] * units, 1))
            ranks = weights[0] * seen[:, 2] + weights[1] * seen[:, 3] + weights[2] * sizes
            fits = info["mask"][:-1] == 1
            action = int(np.where(fits, ranks, np.inf).argmin()) if fits.any() else env.k
            seen, reward, over, _, info = env.step(action)
            total += reward
        return total

    for generation in range(generations):
        tried = mean + spread * random.standard_normal((population, 3))
        # The same four episodes for all, others in each generation.
        episodes = [seed * 1000 + 4 * generation + number for number in range(4)]
        values = [float(np.mean([play(one, episode) for episode in episodes])) for one in tried]
        chosen = tried[np.argsort(values)[-best:]]
        mean, spread = chosen.mean(axis=0), chosen.std(axis=0) + 0.05
        print(
            f"generation {generation + 1}: mean bounded slowdown {-np.mean(values):.0f}", flush=True
        )
    return mean


def main():
    from flux.simulate import Trace, simulate

    weights = train(Trace("sample"))
    FILE.write_text(json.dumps([round(float(one), 3) for one in weights]) + "\n")
    print(f"weights: {FILE.read_text().strip()}")
    # The unseen second half: its first job is submitted after 8.1 days.
    unseen = Trace("sample", window="8.2-20")
    runs = simulate(unseen, ["sched-backfill", f"sched-backfill rank={FILE.with_suffix('.py')}:rank"], seeds=5)  # fmt: skip
    for name in ("wait_mean", "bsld_mean", "wait_max"):
        values = [[run.figures[name] for run in runs if run.number == one] for one in (1, 2)]
        easy, learned = (sum(some) / len(some) for some in values)
        print(f"{name} of unseen jobs: EASY {easy:,.0f}, learned {learned:,.0f}")


if __name__ == "__main__":
    main()
