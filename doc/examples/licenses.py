# SPDX-License-Identifier: LGPL-3.0-or-later
"""Licences as an admission rule: a job starts when its licences are free.

    flux module load ./licenses.py licenses=matlab:40,ansys:8
    flux submit -n4 --setattr=system.licenses.matlab=2 ./model

``Licenses`` works in any scheduler derived from ``PolicyScheduler``; the one below backfills.
"""

from collections import Counter

from flux.scheduler.admission import AdmissionRule, Deferral
from flux.scheduler.policies import Backfill


class Licenses(AdmissionRule):
    name = "licenses"
    attributes = ("licenses",)

    def __init__(self, host, total):
        super().__init__(host)
        self.total = total  # licence name -> number that the site has
        self.in_use = Counter()
        self.asked = {}  # id of a pending or running job -> licence name -> number

    def alloc(self, job, attributes):
        asked = read(attributes)
        for name, count in asked.items():
            if count > self.total.get(name, 0):
                raise ValueError(
                    f"licenses: {count} of {name}: there are {self.total.get(name, 0)}"
                )
        self.asked[job.jobid] = asked

    def signature(self, job):
        return frozenset(self.asked[job.jobid].items())

    def check(self, job):
        for name, count in self.asked.get(job.jobid, {}).items():
            free = self.total[name] - self.in_use[name]
            if count > free:
                text = f"licenses: needs {count} of {name}, {free} of {self.total[name]} are free"
                return Deferral(text, key=name)
        return None

    def start(self, job, alloc):
        self.in_use.update(self.asked.get(job.jobid, {}))

    def hello(self, job):
        self.asked[job.jobid] = read(job.attributes)
        self.in_use.update(self.asked[job.jobid])

    def free(self, jobid, R, final):
        if final:  # until then the program still runs on some of its nodes
            asked = self.asked.pop(jobid, {})
            self.in_use.subtract(asked)
            for name in asked:
                self.host.readmit(self, name)

    def cancel(self, jobid):
        self.asked.pop(jobid, None)


def read(attributes):
    """The licences of a job: numbers by name, validated, since they come from users."""
    asked = attributes.get("licenses", {})
    if not isinstance(asked, dict):
        raise ValueError(f"licenses={asked!r}: expected licenses.NAME=NUMBER")
    for name, count in asked.items():
        if type(count) is not int or count < 1:
            raise ValueError(f"licenses.{name}={count!r}: expected a number, 1 or more")
    return asked


class LicensedBackfill(Backfill):
    def __init__(self, h, *args):
        super().__init__(h, *args)
        total = {}
        for value in self.take_argument("licenses"):
            for entry in value.split(","):
                name, _, count = entry.partition(":")
                if not name or not count.isdigit():
                    raise ValueError(f"licenses={value!r}: expected NAME:NUMBER[,NAME:NUMBER...]")
                total[name] = int(count)
        self.add_rule(Licenses(self, total))


def mod_main(h, *args):
    LicensedBackfill(h, *args).run()
