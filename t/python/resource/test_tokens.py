# SPDX-License-Identifier: LGPL-3.0-or-later
"""Tokens in a plan: random events, compared with sums of all uses at each moment."""

from math import inf
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from flux.resource.plan import tokens as module
from flux.resource.plan.tokens import Holders, TokenPlan

TOTALS = {"a": 5, "b": 3}
TIMES = st.integers(1, 5)
WANTED = st.dictionaries(st.sampled_from(["a", "b", "other"]), st.integers(1, 3), min_size=1)
EVENTS = st.lists(
    st.tuples(st.sampled_from("start end extend promise drop wait".split()), WANTED, TIMES, TIMES)
)


class Uses:
    """The running jobs and the promises as lists of (tokens, start, end)."""

    def __init__(self):
        self.running, self.promised = {}, {}

    def free(self, name, time, without):
        promised = [use for jobid, use in self.promised.items() if jobid not in without]
        uses = [*self.running.values(), *promised]
        return TOTALS[name] - sum(t.get(name, 0) for t, start, end in uses if start <= time < end)

    def fits(self, wanted, start, end, without=()):
        times = [
            start,
            *(t for one in (self.running, self.promised) for u in one.values() for t in u[1:]),
        ]
        return all(
            self.free(name, time, without) >= count
            for name, count in wanted.items()
            if name in TOTALS
            for time in times
            if start <= time < end
        )


@example([("start", {"a": 3}, 2, 1), ("wait", {}, 2, 1)], {"a": 3})  # its end is now
@mock.patch.object(module, "MORE_CHANGES", 1)
@given(EVENTS, WANTED)
def test_random_events(events, wanted):
    uses, held, now = Uses(), {name: Holders() for name in TOTALS}, 0.0
    plan = TokenPlan(TOTALS, held)
    for jobid, (event, tokens, first, second) in enumerate(events):
        if event == "start":
            uses.running[jobid] = tokens, now, now + first if first < 5 else inf
        elif event in ("end", "extend") and uses.running:
            one = list(uses.running)[first % len(uses.running)]
            tokens, start, end = uses.running.pop(one)
            if event == "extend":
                uses.running[one] = tokens, start, now + second
        elif event == "promise":
            uses.promised[jobid] = tokens, now + first, now + first + second
            plan.enter(jobid, *uses.promised[jobid])
        elif event == "drop" and uses.promised:
            one = list(uses.promised)[first % len(uses.promised)]
            assert plan.leave(one) == uses.promised.pop(one)
        elif event == "wait":
            now += first
        for name in TOTALS:
            now_held = {i: (t[name], end) for i, (t, _, end) in uses.running.items() if name in t}
            for one in held[name].keys() | now_held.keys():
                if held[name].get(one) != now_held.get(one):
                    held[name].hold(one, now_held.get(one))
            assert held[name].endless == sum(n for n, end in now_held.values() if end == inf)
        plan.copy().enter(-1, wanted, now, inf)
        for one in (plan, plan.copy()):
            out = [*uses.promised][::2]
            assert one.fits(wanted, now, now + second, now, out) == uses.fits(
                wanted, now, now + second, out
            )
            assert one.fits(wanted, now + first, now + 13, now) == uses.fits(
                wanted, now + first, now + 13
            )
            times = [now, *(now + time for time in range(1, 40))]
            found = next((time for time in times if uses.fits(wanted, time, time + second)), inf)
            assert one.earliest(wanted, now, second, now) == found
        assert plan.are_free(wanted, now) == uses.fits(wanted, now, inf, uses.promised)
        assert plan.blank().earliest(wanted, now, inf, now) >= now
