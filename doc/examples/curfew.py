# SPDX-License-Identifier: LGPL-3.0-or-later
"""A rule for any scheduler, added by the configuration: jobs with ``system.noisy`` start by day only.

[rules]
curfew = "/etc/flux/rules/curfew.py:Curfew"
"""

from flux.scheduler.admission import AdmissionRule, Deferral

HOUR, DAY = 3600, 86400


class Curfew(AdmissionRule):
    attributes = ("noisy",)

    def __init__(self, host):
        super().__init__(host)
        self.noisy = set()  # ids of pending jobs

    def alloc(self, job, attributes):
        self.noisy.add(job.jobid)

    def signature(self, job):
        return job.jobid in self.noisy or None

    def check(self, job):
        time = self.host.now() % DAY
        if job.jobid not in self.noisy or 8 * HOUR <= time < 20 * HOUR:
            return None
        morning = self.host.now() + (8 * HOUR - time) % DAY
        return Deferral(f"{self.name}: it is quiet here until 8:00 UTC", morning)

    def start(self, job, alloc):
        self.noisy.discard(job.jobid)

    def cancel(self, jobid):
        self.noisy.discard(jobid)
