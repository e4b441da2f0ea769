# SPDX-License-Identifier: LGPL-3.0-or-later
"""The observer of an engine."""


class Observer:
    """Receives the events of an engine; a subclass overrides those that it needs."""

    def began(self, active):
        """A job has started."""

    def ended(self, active, how):
        """A job that ran is over; `how` is a result of `states`."""

    def rejected(self, active, note):
        """A job was refused."""

    def annotated(self, active):
        """The scheduler has said something of a job that waits."""

    def arrives(self, index, when):
        """A job that follows another comes in at `when`, seconds since the workload began."""

    def other_began(self, active):
        """A job that is in no trace has started: it ran before, or is a script's."""

    def other_ended(self, active):
        """A job that is in no trace is over."""
