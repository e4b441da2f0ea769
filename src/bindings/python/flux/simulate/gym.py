# SPDX-License-Identifier: LGPL-3.0-or-later
"""`SchedulingEnv`: the simulator as a Gymnasium environment, to train policies.

Engine, pool and library are those of ``flux simulate``; an agent selects the next job to start.
Requires the package ``gymnasium``.
"""

import math
import numbers
import threading
from itertools import islice
from syslog import LOG_ERR

import gymnasium
import numpy as np
from greenlet import getcurrent, greenlet

from flux.resource import InfeasibleRequest, InsufficientResources
from flux.resource.Rv1Pool import Rv1Pool
from flux.scheduler.policy import PolicyScheduler
from flux.scheduler.queue import in_order
from flux.simulate.engine import Observer
from flux.simulate.engine.lean import LeanEngine
from flux.simulate.job import cut, jobspec
from flux.simulate.results.outcome import bounded_slowdown
from flux.simulate.trace import Trace
from flux.simulate.workload.record import check_count

#: Columns of an observation.
COLUMNS = ("there", "fits", "wait", "limit", "size", "free")


def _hours(wait, run, size):
    return wait / 3600.0


def _slowdown(wait, run, size):
    return bounded_slowdown(wait, run)


#: Costs for ``reward=``: functions of (wait, run, size) whose mean is to be minimized.
REWARDS = {"wait": _hours, "slowdown": _slowdown}

#: Seconds that scale to 1 in an observation, logarithmically.
LONG = 30 * 86400.0


def scaled(seconds):
    """Scale seconds to 0..1: log(1 + seconds), 1 from `LONG` on."""
    return min(math.log1p(max(seconds, 0.0)) / math.log1p(LONG), 1.0)


class _Asking(PolicyScheduler):
    """The policy: asks the environment for the next job to start."""

    def __init__(self, h, asked):
        super().__init__(h)
        self.asked = asked

    def schedule(self):
        # Jobs started in a pass stay in the queue until it is over.
        coming = iter(in_order(self._queue))
        window = list(islice(coming, self.asked.k))
        while window:
            job = self.asked.choose(window)
            if job is None:
                return
            try:
                alloc = self.allocate(job)
            except InsufficientResources:
                return  # enough units are free, but not on the nodes that it needs
            self.start(job, alloc)
            window.remove(job)
            window += islice(coming, 1)


class SchedulingEnv(gymnasium.Env, Observer):
    """Select which of the first K pending jobs starts next.

    An episode runs consecutive jobs of the trace on an empty machine; a step is a decision. The
    agent decides after each event while jobs wait, and again after each start, until it chooses to
    wait.

    - Observation: `Box(0, 1, (K, 6), float32)`. A row is a job, in order of submission, with the
      columns of `COLUMNS`: whether the job exists, whether as many units as it needs are free, its
      wait and its limit (scaled by `scaled`; 1 without a limit), its size and, in each row, the
      free units, both as fractions of the machine.
    - Action: `Discrete(K + 1)`; another is a ValueError. Below K: start that job. K, or a job that does not exist or fit:
      wait for the next event. If no job runs, the first that fits starts then.
    - Reward: minus the sum of ``reward`` over the jobs started in the step, divided by the number
      of jobs; an episode sums to minus the mean over all jobs, of the wait in hours or the bounded
      slowdown.
    - info: ``mask``, int8 of shape (K + 1,): the effective actions; ``time``, seconds since the
      first submission.

    The same seed gives the same episodes. An episode belongs to the thread that began it, by
    `reset`: elsewhere a step raises gymnasium.error.ResetNeeded.

    Args:
        trace (Trace or str): the jobs and the machine, with one value per option, without
            dependencies, and without a configuration other than ``resource.config``
        k (int): K
        jobs (int or None): number of consecutive jobs in an episode, from a random position; None:
            the whole trace
        reward (str or function): ``wait``, ``slowdown``, or ``function(wait, run, size)`` of a
            started job, in seconds and units
        part ((float, float)): part of the trace to draw episodes from, as fractions of its jobs:
            (0, 0.5) leaves half for tests

    Raises:
        ValueError: the trace cannot be read, is too short, or has jobs that are held or larger than the machine
    """

    metadata = {"render_modes": []}

    def __init__(self, trace="sample", k=16, jobs=256, reward="wait", part=(0.0, 1.0)):
        trace = trace if isinstance(trace, Trace) else Trace(trace)
        if trace.sweeps:
            raise ValueError(f"{trace.sweeps[0]}: expected one value")
        work = self._workload = trace.workload()
        tables = [f"[{name}]" for name in trace.config if name != "resource"]
        tables += ["resource.exclude"] if work.usable is not work.machine else []
        if tables:
            raise ValueError(f"{tables[0]} of the configuration: expected resource.config only")
        if any(job.after is not None for job in work.jobs):
            raise ValueError("jobs that follow others cannot be cut into episodes")
        held = next((job.id for job in work.jobs if not job.urgency), None)
        if held is not None:
            raise ValueError(f"job {held}: held (urgency 0): it would never start")
        pool = Rv1Pool(work.machine.R)
        for job in {repr(jobspec(job)["resources"]): job for job in reversed(work.jobs)}.values():
            try:
                pool.check_feasibility(pool.parse_resource_request(jobspec(job)))
            except InfeasibleRequest as reason:
                raise ValueError(f"job {job.id}: {reason}") from None
        begin, end = part if isinstance(part, (tuple, list)) and len(part) == 2 else (1, 0)
        if not 0 <= begin < end <= 1:
            raise ValueError(f"part={part}: expected two fractions of the trace, in order")
        check_count("k", k, required=True)
        check_count("jobs", jobs, 0)
        count = len(work.jobs)
        self._first, last = int(begin * count), int(end * count)
        self._count = last - self._first if jobs is None else jobs
        self._places = last - self._first - self._count + 1
        if self._count < 1 or self._places < 1:
            most = last - self._first
            raise ValueError(f"jobs={jobs}: expected 1 to {most:,}, the jobs in part={part}")
        self.k = k
        self._cost = REWARDS.get(reward, reward)
        if not callable(self._cost):
            raise ValueError(f"reward {reward!r}: expected {', '.join(REWARDS)} or a function")
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (k, len(COLUMNS)), np.float32)
        self.action_space = gymnasium.spaces.Discrete(k + 1)
        self._engine = self._runs = self._thread = None
        self._window = []
        self._busy = self._gain = 0.0

    # -- called by Gymnasium -----------------------------------------------------------------------------------

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.close()
        begin = self._first + int(self.np_random.integers(self._places))
        self._jobs = jobs = cut(self._workload.jobs[begin : begin + self._count])
        units = self._workload.units
        self._submits = np.array([job.submit for job in jobs])
        self._known = np.array(
            [(1, 0, 0, scaled(job.limit) if job.limit else 1, job.size / units, 0) for job in jobs],
            np.float32,
        )
        self._busy, self._gain, self._window = 0.0, 0.0, []
        self._engine = LeanEngine(
            self._workload.machine, jobs, __file__, (), self, entry=lambda h: _Asking(h, self).run()
        )
        self._engine.is_watched = False  # it waits for an agent
        self._runs, self._thread = greenlet(self._run), threading.current_thread()
        self._continue(None)
        return self._observation(), self._info()

    def step(self, action):
        if self._runs is None or self._runs.dead:
            raise gymnasium.error.ResetNeeded("no episode runs: call reset()")
        if self._thread is not threading.current_thread():
            raise gymnasium.error.ResetNeeded("the episode is another thread's: call reset()")
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r}: expected an integer from 0 to {self.k}")
        self._gain = 0.0
        self._continue(int(action))
        return self._observation(), self._gain, self._runs.dead, False, self._info()

    def close(self):
        # Only its own thread can run a greenlet, and so end the engine: another one drops it.
        is_ours = self._thread is threading.current_thread()
        if self._runs is not None and not self._runs.dead and is_ours:
            self._engine.interrupted = True
            self._continue(self.k)
        self._runs = self._engine = None

    # -- the engine, which runs on a stack of its own --------------------------------------------------------------

    def _run(self, _):
        self._engine.run()
        self._window = []
        wrong = next((text for _, level, text in self._engine.log.lines if level <= LOG_ERR), None)
        if wrong is not None:
            raise RuntimeError(wrong)

    def _continue(self, action):
        """Run the engine until it asks for a decision, or ends."""
        self._runs.parent = getcurrent()
        self._runs.switch(action)

    def choose(self, jobs):
        """Return one of the first K jobs, or None; called by the policy."""
        if self._engine.interrupted:
            return None
        self._window = jobs
        action = getcurrent().parent.switch()
        free = self._workload.units - self._busy
        if action < len(jobs) and self._size(jobs[action]) <= free:
            return jobs[action]
        if self._busy or self._engine.interrupted:
            return None
        return next((job for job in jobs if self._size(job) <= free), None)

    def _size(self, job):
        return self._jobs[job.jobid - 1].size

    # Called by the engine.

    def began(self, active):
        job, wait = active.job, active.start - active.t_submit
        self._busy += job.size
        cost = self._cost(wait, job.seconds, job.size)
        if not isinstance(cost, numbers.Real) or not math.isfinite(cost):
            raise ValueError(
                f"the reward of wait={wait:g}, run={job.seconds:g}, size={job.size}: {cost}:"
                " expected a finite number"
            )
        self._gain -= cost / self._count

    def ended(self, active, how):
        if active.start is not None:
            self._busy -= active.job.size

    # -- observations -------------------------------------------------------------------------------------------

    def _observation(self):
        found = np.zeros((self.k, len(COLUMNS)), np.float32)
        if self._window:
            places = [one.jobid - 1 for one in self._window]
            rows = found[: len(places)]
            free = 1.0 - self._busy / self._workload.units
            rows[:] = self._known[places]
            rows[:, 1] = rows[:, 4] <= free + 1e-7
            wait = np.maximum(self._engine.now - self._submits[places], 0.0)
            rows[:, 2] = np.minimum(np.log1p(wait) / math.log1p(LONG), 1.0)
            found[:, 5] = free
        return found

    def _info(self):
        mask = np.zeros(self.k + 1, np.int8)
        free = self._workload.units - self._busy
        for place, job in enumerate(self._window):
            mask[place] = self._size(job) <= free
        mask[self.k] = 1
        return {"mask": mask, "time": self._engine.now}
