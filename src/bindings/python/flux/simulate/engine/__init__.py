# SPDX-License-Identifier: LGPL-3.0-or-later
"""Two ways to run a scheduler's module on a list of jobs: `lean` and `instance`."""

import os

from flux.simulate.job import followers


class Engine:
    """The base of both engines.

    Args:
        jobs (list of Job): in order of submission
        path (str), args (list of str): file of the scheduler, and its arguments
        observer (Observer): is told of the jobs
        epoch (float): start of the workload, seconds since the epoch
        forecast (bool): whether the scheduler estimates starts and gives reasons

    Attributes:
        name (str): the scheduler's
        followers (dict): index of a job -> indices of the jobs that follow it
        kernel: has the time of the run
        log: the scheduler's warnings and errors as `lines`, see `loop.Log`
        history (list): (seconds since the epoch, bounds of the ranks available from then on)
        interrupted (bool): set to end the run at the next instant
        every: called from time to time, or None
        ended_at (float or None): time at which the scheduler ended too early, in seconds since the
            start of the workload
    """

    kernel = log = None

    def __init__(self, machine, jobs, path, args, observer, epoch, forecast, config):
        self.machine = machine
        self.jobs = jobs
        self.path = path
        self.args = list(args)
        self.name = os.path.basename(path).removesuffix(".py")
        self.observer = observer
        self.epoch = epoch
        self.forecast = forecast
        self.config = config or {}
        self.followers = followers(jobs)
        self.interrupted = False
        self.every = None
        self.ended_at = None

    @property
    def now(self):
        """Seconds since the start of the workload."""
        return self.kernel.time - self.epoch


class Observer:
    """Receives the events of an engine; a subclass overrides those that it needs. The `index` of a
    job is -1 if it is of no trace: it ran from the beginning, or a script submitted it."""

    def submitted(self, index, when):
        """A job of the trace is submitted; `when` is in seconds since the epoch."""

    def annotated(self, active):
        """The scheduler annotated a pending job."""

    def began(self, active):
        """A job started."""

    def ended(self, active, how):
        """A job ended; `how` is a result of `states`."""

    def rejected(self, active, note):
        """A job of the trace was refused."""
