# SPDX-License-Identifier: LGPL-3.0-or-later
"""Room on ranks over time: the definition, and the compiled part that has to agree with it."""

import math
import random

import pytest
from shared import seeds

from flux.resource.plan.availability import Demand
from flux.resource.plan.plain_availability import PlainAvailability
from flux.resource.request import Claimant

NOW = 1_700_000_000.0


def machine(rng, ranks):
    """Totals of a machine of one to three kinds of rank."""
    kinds = rng.sample([(4, 0), (4, 2), (8, 0), (8, 4), (2, 1)], rng.randint(1, 3))
    return {rank: rng.choice(kinds) for rank in range(ranks)}


def a_demand(rng, totals):
    ranks = sum(1 << rank for rank in totals if rng.random() < 0.8)
    whole = rng.random() < 0.2
    per_node = whole or rng.random() < 0.5
    each = (rng.choice([1, 1, 2, 4]), rng.choice([0, 0, 0, 1, 2]))
    count = rng.randint(1, max(1, len(totals) // 2 if per_node else len(totals)))
    return Demand(count, each, per_node, whole, ranks, a_claim(rng, totals))


def a_claim(rng, totals):
    if rng.random() < 0.5:
        return None
    where = (rng.choice([-1, 0, rng.getrandbits(len(totals))]) for _ in range(2))
    return Claimant((rng.randrange(3), rng.choice("ab")), tuple(where))


def a_length(rng):
    return rng.choice([10.0, 20.5, 35.0, 60.0, 100.0, math.inf])


class Both:
    """The definition and the compiled part, asked the same."""

    def __init__(self, totals, built):
        self.each = [PlainAvailability(totals)]
        if built:
            from flux.resource.plan.compiled import CompiledAvailability

            self.each.append(CompiledAvailability(totals))
        self.numbers = {}  # ours to theirs
        self.next = 0

    def same(self, method, asked):
        """The answer of each to its arguments, which has to be the same."""
        answers = [getattr(one, method)(*args) for one, args in zip(self.each, asked)]
        assert all(answer == answers[0] for answer in answers), (method, asked, answers)
        return answers[0]

    def ask(self, method, *args):
        return self.same(method, [args] * len(self.each))

    def of(self, method, number, *args):
        return self.same(method, [(own, *args) for own in self.numbers[number]])

    def row(self, numbers, *args):
        rows = [[self.numbers[n][at] if n else 0 for n in numbers] for at in range(len(self.each))]
        self.same("first_to_start", [(row, *args) for row in rows])

    def make(self, method, *args):
        answers = [getattr(one, method)(*args) for one in self.each]
        assert len({answer > 0 for answer in answers}) == 1, (method, args, answers)
        if not answers[0]:
            return 0
        self.next += 1
        self.numbers[self.next] = answers
        return self.next


@pytest.mark.parametrize("seed", seeds(10, 60))
def test_both_give_the_same_answers(built, seed):
    rng = random.Random(seed)
    totals = machine(rng, rng.randint(1, 9))
    both = Both(totals, built)
    now, running, promises = NOW, [], []
    for _ in range(60):
        now += rng.choice([0, 0, 0.5, 5, 20])
        step = rng.random()
        demand, length = a_demand(rng, totals), a_length(rng)
        demands = [demand, *(a_demand(rng, totals) for _ in range(rng.choice([0, 0, 1, 3])))]
        if step < 0.25:  # a job starts where there is room
            units, ranks = both.ask("room", demand, now, now + length)
            if rng.random() < 0.2:  # an open promise may take ranks of others
                ranks = both.each[0].room(demand, now, now, ())[1]
            chosen = [rank for rank in totals if ranks >> rank & 1][: demand.count]
            if chosen:
                amounts = [totals[rank] if demand.whole else demand.each for rank in chosen]
                where = [(1 << rank, taken) for rank, taken in zip(chosen, amounts)]
                end = now + length
                running.append(both.make("use", -math.inf, end, where, None, demand.claim))
        elif step < 0.4 and running:
            number = running.pop(rng.randrange(len(running)))
            both.of("drop", number)
        elif step < 0.5 and promises:
            number = promises.pop(rng.randrange(len(promises)))
            both.of("leave", number)
            if rng.random() < 0.5:
                both.of("enter", number)
                promises.append(number)
            else:
                both.of("drop", number)
        elif step < 0.55:
            both.each = [one.copy() for one in both.each]
        else:
            may_move = rng.random() < 0.8
            after = now + rng.choice([0, 0, 7, 40])
            times = [both.ask("earliest", one, length, after, now, may_move) for one in demands]
            when = min(times)
            demand = demands[times.index(when)]
            early = after if rng.random() < 0.5 else now + rng.choice([0, 10, 30])
            both.ask("can_start", demand, early, early + length, True)
            for number in promises:
                another, end = a_demand(rng, totals), now + a_length(rng)
                both.of("leave", number)
                both.ask("can_start", another, now, end, rng.random() < 0.7)
                both.of("enter", number)
            number = both.make("book", demand, -math.inf, now + length, now, may_move)
            if number:  # it can start now
                for method in ("amounts_of", "drop"):
                    both.of(method, number)
            row = rng.sample(promises, len(promises)) + rng.sample([0], rng.random() < 0.2)
            both.row(row, now, rng.random() < 0.7, rng.random() < 0.7, rng.choice([1, 3, 30]))
            start = rng.choice([early, when])
            if start < math.inf:
                number = both.make("book", demand, start, start + length, now, may_move)
                assert number or start != when, "what was found is there"
                if number:
                    promises.append(number)
        for number in running + promises:
            both.of("amounts_of", number)
            both.of("overdrawn", number, now)
        both.ask("room", demand, now + 10, now + 30)
        both.ask("room_by_rank", demand, now + 5, now + 25)
        both.ask("taken", now + 5, now + 45)
        span = rng.choice([-math.inf, now]), rng.choice([-math.inf, now + 9])
        both.ask("taken", *span, a_claim(rng, totals))
        both.ask("enough_until", a_demand(rng, totals), now)


def test_a_rank_with_too_few_gpus_has_no_room_for_cores(built):
    """Until its GPUs suffice again for the uses; a search finds that time."""
    both = Both({0: (4, 2)}, built)
    for end, gpus in ((30, 1), (10, 2)):
        both.make("use", -math.inf, NOW + end, [(1, (1, gpus))])
    cores = Demand(2, (1, 0), False, False, 1)
    assert both.ask("room", cores, NOW, NOW + 5) == (0, 0)
    assert both.ask("earliest", cores, 5.0, NOW, NOW, False) == NOW + 10


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_booked_resources_are_never_overdrawn(seed):
    rng = random.Random(seed)
    totals = machine(rng, 6)
    here = PlainAvailability(totals)
    booked = []
    for _ in range(25):
        demand, length = a_demand(rng, totals), a_length(rng)
        start = here.earliest(demand, length, NOW, NOW, True)
        if start < math.inf:
            booked.append(here.book(demand, start, start + length, NOW, True))
            assert not any(here.overdrawn(number, NOW) for number in booked)
