# SPDX-License-Identifier: LGPL-3.0-or-later
"""The observer of an engine."""


class Observer:
    """Receives the events of an engine; a subclass overrides those that it needs."""

    def began(self, active):
        """A job started."""

    def ended(self, active, how):
        """A job of the trace ended; `how` is a result of `states`."""

    def rejected(self, active, note):
        """A job was refused."""

    def annotated(self, active):
        """The scheduler annotated a pending job."""

    def submitted(self, index, when):
        """A job of the trace is submitted; `when` is in seconds since the epoch."""

    def other_began(self, active):
        """A job of no trace started: it ran from the beginning, or a script submitted it."""

    def other_ended(self, active):
        """A job of no trace ended."""
