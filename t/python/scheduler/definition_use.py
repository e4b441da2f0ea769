# SPDX-License-Identifier: LGPL-3.0-or-later
"""Use over time in the histories of `definition_play`: budgets and fair share."""

from math import inf, log

from flux.scheduler.definition import RANKS, Counter

#: Budgets: whose, unit, and its number times seconds. A day ends some seconds after the beginning.
BUDGETS = ("user", "node", 2160.0), ("bank", "core", 12600.0)
DAY_S, TO_MIDNIGHT = 86400.0, 200.0
#: Jobs that wait for the rest of a budget start when it suffices for them, unless it lasts less than this.
LEAST_S = 1.0
#: Tolerance of a budget.
GRAIN = 1e-3

#: Of fair share: half-life, interval between computations of the order, and between those for newcomers, in
#: seconds; shares other than 1.
HALF_LIFE, PERIOD, NEWCOMERS = 60.0, 20.0, 1.0
SHARES = {"a": 2.0, 1001: 3.0}

CONFIG = {
    "budgets": {
        "budgets": {
            per: {"per": per, "period": "day", "zone": "UTC", "max": {f"{unit}-hours": most / 3600}}
            for per, unit, most in BUDGETS
        }
    },
    "fairshare": {
        "fairshare": {
            "half-life": HALF_LIFE,
            "period": PERIOD,
            "banks": {"a": SHARES["a"]},
            "users": {"1001": SHARES[1001]},
        }
    },
}


class UseOverTime:
    """A part of `definition_play.Player`."""

    def begin_use(self, cores):
        """`cores`: number of cores of a node."""
        self.cores, self.midnight = cores, inf
        self.due_at = {}
        self.ran, self.levels, self.period_at, self.sort_at, self.used_at = [], {}, inf, inf, -inf
        if "budgets" in self.case.features:
            self.midnight = self.begin + TO_MIDNIGHT - DAY_S
            self.begin_day()

    def begin_day(self):
        """Begin a period of the budgets."""
        state, self.midnight = self.state, self.midnight + DAY_S
        for per, unit, most in BUDGETS:
            of = RANKS if unit == "node" else 0
            if state.lines:
                most, of = most / (self.cores if unit == "core" else 1), None
            for whose in (1001, 1002, 1003) if per == "user" else "ab":
                period = self.midnight - DAY_S, self.midnight
                state.counters[f"hours {whose}"] = Counter(most + GRAIN, of, period=period)
        state.spent, state.freed = {}, True

    def hours_of(self, arrival, demand, cores):
        """The units of budgets that a job takes, at least."""
        if "budgets" not in self.case.features:
            return {}
        nodes = demand.count if self.state.lines or demand.per_node else 1
        bank = arrival.spec["attributes"]["system"]["bank"]
        return {f"hours {arrival.userid}": nodes, f"hours {bank}": cores}

    def note_end(self, job, use):
        """Note the use of a job that ends."""
        state = self.state
        self.ran.append((self.association(job), self.rate(job, use), job.began, self.now))
        for name in job.takes:
            period = state.counters[name].period
            if period:
                seconds = self.now - max(job.began, period[0])
                charge = state.units(name, job, use) * seconds
                state.spent[name] = state.spent.get(name, 0.0) + charge

    def budget_wakes(self):
        """The times at which the rest of a budget suffices for a pending job, or for the place that was
        found for it."""
        state, found = self.state, {}
        for job in state.pending if self.midnight < inf else ():
            is_over = job.is_refused or state.is_over(job)
            found.setdefault(self.midnight, []).append((job, is_over))
            for name, least in job.takes.items():
                counter = state.counters[name]
                rate = state.units(name, job, job.offer) if job.is_refused and job.offer else least
                if counter.period and rate:
                    length = (counter.most - GRAIN - state.used(name)) / rate
                    if LEAST_S <= length < job.limit:
                        found.setdefault(self.midnight - length, []).append((job, is_over))
        self.due_at = found
        return found

    # -- fair share --------------------------------------------------------------------------------

    def association(self, job):
        arrival = self.jobs[job.id]
        return arrival.spec["attributes"]["system"]["bank"], arrival.userid

    def waiting(self):
        """The jobs that wait for their start, those that others end for, too."""
        return {*self.state.pending, *(one.job for one in self.evictions)}

    def rate(self, job, use):
        """Cores that a job takes, also on ranks that are down."""
        if self.state.lines:
            return job.demands[0].count * self.cores
        return sum(amounts[0] for amounts in use.where.values())

    def used(self, one, time):
        """The use of an association, in core-seconds, of which half is left after each half-life."""
        running = self.state.running.items()
        spans = [
            (self.association(j), self.rate(j, u), j.began, time) for j, u in running if j.id > 0
        ]
        return sum(
            rate
            * HALF_LIFE
            / log(2)
            * (0.5 ** ((time - end) / HALF_LIFE) - 0.5 ** ((time - began) / HALF_LIFE))
            for whose, rate, began, end in [*self.ran, *spans]
            if whose == one and began < time
        )

    def level(self, one):
        """The place of an association by use: its bank's, then its own, each by its share."""
        bank = sum(self.used((one[0], user), self.used_at) for user in (1001, 1002, 1003))
        own = self.used(one, self.used_at)
        return bank / SHARES.get(one[0], 1.0), own / SHARES.get(one[1], 1.0)

    def share(self, job):
        """The level of a new job's association: of now, if no job of it waits and the last was not
        computed just before."""
        if "fairshare" not in self.case.features:
            return ()
        one = self.association(job)
        if self.period_at == inf:
            self.period_at = self.now + PERIOD
        if all(self.association(other) != one for other in self.waiting()):
            due = self.used_at + NEWCOMERS
            is_due = self.now >= due
            self.used_at = self.now if is_due else self.used_at
            self.levels[one] = self.level(one)
            if is_due:
                self.sort(one)
            else:
                self.sort_at = min(self.sort_at, due)
        return self.levels[one]

    def sort(self, *more):
        """Sort the pending jobs by the levels of now, with those of associations whose jobs come."""
        self.sort_at, self.used_at = inf, self.now
        pending = {self.association(job) for job in self.waiting()} | {*more}
        after = {one: self.level(one) for one in pending}

        def places(levels):
            return [[levels[one] < levels[other] for one in pending] for other in pending]

        if places(self.levels) != places(after):
            state, self.levels = self.state, after
            promised = sorted(state.promises, key=lambda job: job.position)
            for job in self.waiting():
                job.share = after[self.association(job)]
            for at, job in enumerate(promised):
                if any(job.position < other.position for other in promised[:at]):
                    self.moved(job)
            self.ask_refused()

    def keep_order(self):
        """Sort the pending jobs when a period ends, and for newcomers."""
        for job, is_over in self.due_at.get(self.now, ()):
            # A member that no budget holds waits for its reservation.
            self.state.freed = True
            job.is_aside = job.is_aside and job.window is not None and not is_over
            if not (job.is_refused and job.offer and self.state.is_over(job, job.offer)):
                job.was_refused, job.is_refused = job.is_refused, False
        if self.period_at <= self.now:
            if self.waiting():
                self.sort()
                self.period_at += PERIOD * (1 + (self.now - self.period_at) // PERIOD)
            else:
                self.levels, self.period_at = {}, inf
        if self.sort_at <= self.now:
            self.sort()
