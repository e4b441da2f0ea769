# SPDX-License-Identifier: LGPL-3.0-or-later
"""Two ways to run a scheduler's module on a list of jobs: `lean` and `instance`."""


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
