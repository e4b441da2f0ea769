"""How many jobs are in which state."""

__all__ = ["JobStats"]

STATES = ("depend", "priority", "sched", "run", "cleanup", "inactive", "total")
ENDS = ("successful", "failed", "canceled", "timeout", "inactive_purged")


class JobStats:
    """Counts of jobs.

    Args:
        h (Flux): handle
        queue (iterable of str): only jobs of these queues

    Attributes:
        depend, priority, sched, run, cleanup, inactive, total (int): by state
        successful, failed, canceled, timeout, inactive_purged (int): inactive jobs by result; failed
            has neither canceled nor timed out ones
        pending, running, active (int): sums of states
    """

    def __init__(self, h, queue=None):
        self.handle = h
        self.queues = [queue] if isinstance(queue, str) else queue
        self.callback = None
        self.cb_kwargs = {}
        for name in (*STATES, *ENDS, "pending", "running", "active"):
            setattr(self, name, -1)

    def _take(self, rpc):
        answer = rpc.get()
        tables = [answer]
        if self.queues:
            known = {table["name"]: table for table in answer["queues"]}
            for name in self.queues:
                if name not in known:
                    raise ValueError(f"no stats available for queue {name}")
            tables = [known[name] for name in self.queues]
        for name in STATES:
            setattr(self, name, sum(table["job_states"][name] for table in tables))
        for name in ENDS:
            setattr(self, name, sum(table[name] for table in tables))
        self.pending = self.depend + self.priority + self.sched
        self.running = self.run + self.cleanup
        self.active = self.pending + self.running

    def _arrived(self, rpc):
        self._take(rpc)
        if self.callback is not None:
            self.callback(self, **self.cb_kwargs)

    def update(self, callback=None, **kwargs):
        """Ask for the counts; the reactor calls ``callback(stats, **kwargs)`` when they are there."""

        self.callback, self.cb_kwargs = callback, kwargs
        self.handle.rpc("job-list.job-stats", {}).then(self._arrived)
        return self

    def update_sync(self):
        """Ask for the counts and wait for them; returns self."""
        self._take(self.handle.rpc("job-list.job-stats", {}))
        return self
