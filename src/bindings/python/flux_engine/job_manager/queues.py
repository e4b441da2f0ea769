# SPDX-License-Identifier: LGPL-3.0-or-later
"""Job queues: submission, scheduling, status (RFC 33).

Without configuration there is one anonymous queue, name None, enabled and started. Named queues are enabled and stopped when
they first appear, and keep their state across later configuration changes.

A queue with a parent is virtual: its jobs have its parent's constraint, and are scheduled only while both queues are started. It
is enabled and disabled independently of its parent.
"""

import errno

from flux_engine.formats import policy


class Queue:
    """One queue; `name` is None for the anonymous one.

    Attributes:
        parent (Queue): of a virtual queue, whose resources it has; else None
        requires (list of str): the properties that its jobs are constrained to
        started (bool): whether it was started itself, regardless of its parent
    """

    def __init__(self, name, started):
        self.name = name
        self.enabled = True
        self.disable_reason = ""
        self.started = started
        self.stop_reason = None
        self.parent = None
        self.requires = []

    @property
    def schedules(self):
        """Whether its jobs may be scheduled: it is started, and so is its parent."""
        return self.started and (self.parent is None or self.parent.started)

    def status(self, has_scheduler):
        """The status object of RFC 33; `has_scheduler`: whether there is a scheduler."""
        status = {"enable": self.enabled, "start": has_scheduler and self.schedules}
        if self.parent is not None:
            status["parent"] = self.parent.name
        if not self.enabled:
            status["disable_reason"] = self.disable_reason
        if status["start"]:
            return status
        reason = self.stop_reason
        if not has_scheduler:
            reason = "Scheduler is offline"
        elif self.started:
            reason = f"parent queue '{self.parent.name}' is stopped"
        if self.started:
            status["blocked"] = "parent" if has_scheduler else "scheduler"
        if reason is not None:
            status["stop_reason"] = reason
        return status


class Queues:
    """All queues.

    Attributes:
        table (dict): name -> Queue
    """

    def __init__(self):
        self.table = {None: Queue(None, True)}

    @property
    def are_named(self):
        return None not in self.table

    def configure(self, config):
        """Take the ``queues`` table of a new configuration. OSError EINVAL: nothing is changed."""
        policy.validate(config)
        named = config.get("queues", {})
        table = {name: self.table.get(name) or Queue(name, False) for name in named}
        for name, queue in table.items():
            parent = named[name].get("parent")
            queue.parent = table.get(parent)
            queue.requires = list(named[parent or name].get("requires", ()))
        self.table = table or {None: self.table.get(None) or Queue(None, True)}

    def find(self, name):
        """The queue `name`. OSError EINVAL: there is none."""
        queue = self.table.get(name)
        if queue is None:
            if name is None:
                raise OSError(errno.EINVAL, "no queue specified")
            raise OSError(errno.EINVAL, f"'{name}' is not a valid queue")
        return queue

    def chosen(self, name, every):
        """The queues that a request applies to: the one of this name, or all, if they have no names or `every` is set."""
        if name is not None:
            return [self.find(name)]
        if self.are_named and not every:
            raise OSError(errno.EINVAL, "Use --all to apply this command to all queues")
        return list(self.table.values())

    def check_submit(self, name):
        """Raise OSError EINVAL if jobs cannot be submitted to queue `name` now."""
        queue = self.find(name)
        if not queue.enabled:
            where = f" to {name}" if name else ""
            reason = queue.disable_reason
            raise OSError(errno.EINVAL, f"job submission{where} is disabled: {reason}")

    def is_started(self, job):
        """Whether `job`'s queue allows sending it to the scheduler."""
        queue = self.table.get(job.queue_name)
        return queue is not None and queue.schedules

    def is_stopped(self, job):
        """Whether `job`'s queue is stopped. One that was removed is not: jobs sent before stay with the scheduler."""
        queue = self.table.get(job.queue_name)
        return queue is not None and not queue.schedules
