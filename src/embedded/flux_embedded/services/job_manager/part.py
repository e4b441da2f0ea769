# SPDX-License-Identifier: LGPL-3.0-or-later
"""The base of the job manager's parts."""


class Part:
    """A part of the job manager: `service`, which has the other parts; `jobs` and `events` are those of all parts.

    Its methods that are marked with `request` answer requests to the job manager.
    """

    def __init__(self, service):
        self.service = service
        self.jobs = service.jobs
        self.events = service.events
