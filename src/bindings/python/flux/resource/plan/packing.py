# SPDX-License-Identifier: LGPL-3.0-or-later
"""Whether there is a way to keep all promises, where it matters on which ranks they are.

Given are *items*: promises whose ranks may be chosen again, and a request that is to fit beside
them. Each wants so many units (nodes, or slots) all through a span of time. What a rank can give is
a vector with a number of units for each item. Vectors to which nothing can be added are the
*offers* of a rank. There is a way if one offer of each rank can be chosen so that together they
give what is wanted.

Three methods are tried, the quickest first:

- If all ranks together have less free than the items take, there is no way. Sums show that, which
  answers most questions on a busy machine (``sums.py``, and `too_few()`, which counts of what a
  rank has free only what units of the items can use).
- Ranks are dealt out greedily, each to one item at a time. That finds a way, if there is one, for
  nearly all questions on large pools (`deal()`).
- All ways are looked through, rank by rank. Of the ways that leave the same to be given, one is
  kept, and none that leaves more than another one (`pack()`). This is exact, unless it is given up
  because it takes more steps than there are (`Effort`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from flux.resource.pool.masks import members, popcount, take
from flux.resource.pool.placement import slots_on

if TYPE_CHECKING:
    from flux.resource.plan.bookings import Step
    from flux.resource.request import Shape

#: Units for each item, in the order of the items.
Vector = tuple[int, ...]
#: For each vector that may remain to be given, as a number of `_Fields`, how that comes about: what
#: remained before, and which rank gave what.
Ways = dict[int, tuple[int, int, Vector]]

#: Steps after which pack() gives up, each of a microsecond or two: some 25 ms, which a pass over
#: the queue can spend on a job or two. That many on up to RANKS_FOR_ALL_STEPS ranks; on more, an
#: eighth, since there the greedy deal() rarely fails when there is a way.
MAX_PACKING_STEPS = 16000
RANKS_FOR_ALL_STEPS = 16
#: Steps that a change of the pool earns (see Effort): less than 0.1 ms, a part of what a pass
#: takes.
STEPS_PER_CHANGE = 50
#: Ways of sharing one rank between the items that are looked at; with small slots on large nodes
#: there are thousands, of which the first fill the rank best.
MAX_OFFERS_PER_RANK = 64


#: ``(cores, GPUs, once)``: what a unit takes of a rank, and whether a rank can give only one.
Unit = tuple[int, int, bool]
#: ``(mask of ranks, full, free)``: ranks in one state: cores and GPUs each has in all, and
#: ascending steps: what it has free from each time on.
Group = tuple[int, tuple[int, int], "Sequence[Step]"]


class Item:
    """Units wanted for a span.

    Args:
        shape (Shape): of the request
        start, end (float): the span, seconds since the epoch
        room (int): mask of the ranks that have room for a unit, were there no other item

    Attributes:
        count (int): units wanted
        slots (bool): whether a rank can give several units
        chosen (dict): units to mask of the ranks that give so many, once it is settled
    """

    def __init__(self, shape: Shape, start: float, end: float, room: int) -> None:
        self.shape = shape
        self.start = start
        self.end = end
        self.room = room
        self.slots = shape.node_count is None
        self.count = shape.least_count
        self.chosen: dict[int, int] = {}
        # Key to mask of ranks at its start, for who asks what they have free then.
        self.groups: dict[int, int] | None = None

    def give(self, ranks: int, units: int) -> None:
        """Choose so many units on each of a mask of ranks."""
        self.chosen[units] = self.chosen.get(units, 0) | ranks

    def meets(self, other: Item) -> bool:
        """Whether two spans have a moment in common."""
        return self.start < other.end and other.start < self.end

    def takes(self, full: tuple[int, int]) -> tuple[int, int]:
        """Cores and GPUs that a unit takes of a rank, given what the rank has in all."""
        return taken(self.shape, full)


def taken(shape: Shape, full: tuple[int, int]) -> tuple[int, int]:
    """Cores and GPUs that a node or slot of a shape takes of a rank that has so many in all."""
    if shape.exclusive:
        return full
    if shape.node_count is None:
        return shape.slot_size, shape.gpu_per_slot
    return shape.node_cores, shape.node_gpus


def deal(items: list[Item], most: Callable[[int, Item], int]) -> bool:
    """Deal ranks out greedily. Items with a moment in common get no rank in common.

    Args:
        items (list of Item): the request that is to fit comes first.
        most: function of ``(rank, item)``: how many units the rank can give to the item alone.

    Returns:
        bool: whether all got what they want; if so, it is in their ``chosen``.
    """
    waiting = items[:1] + sorted(items[1:], key=lambda one: popcount(one.room) - one.count)
    taken: list[tuple[Item, int]] = []
    while waiting:
        item = waiting.pop(0)
        room = item.room
        for other, ranks in taken:
            if other.meets(item):
                room &= ~ranks
        # Ranks that few of the others could use are given away first.
        wanted = [other.room for other in waiting if other.meets(item)]
        left = item.count
        ranks = 0
        for part in _by_demand(room, wanted):
            if item.slots:
                for rank in members(part):
                    units = min(left, most(rank, item))
                    if units:
                        item.give(1 << rank, units)
                        ranks |= 1 << rank
                        left -= units
                    if not left:
                        break
            else:
                part = take(part, min(left, popcount(part)))
                item.give(part, 1)
                ranks |= part
                left -= popcount(part)
            if not left:
                break
        if left:
            for one in items:
                one.chosen.clear()
            return False
        taken.append((item, ranks))
    return True


def too_few(
    items: list[Item],
    sizes: Iterable[tuple[int, int]],
    free_at: Callable[[float], Iterable[tuple[int, int, int]]],
) -> bool:
    """True if at some moment fewer cores or GPUs can be used than the items take.

    That is so for most questions on a busy machine, and takes much less time than to show that
    there is no way. What a rank has free counts as far as units of the items fill it: of 15 cores,
    slots of four cores can use 12. O(items * groups of ranks), once such a group was seen.

    Args:
        items (list of Item)
        sizes: ``(cores, GPUs)`` that a rank may have in all.
        free_at: function of a moment, that returns ``(mask of ranks, cores, GPUs)``: what each of
            these has free then; no rank is in two of them.
    """
    takes = []
    for item in items:
        each = [item.takes(full) for full in sizes]
        takes.append(
            (
                min([one for one, _ in each], default=0),
                min([one for _, one in each], default=0),
                not item.slots,
            )
        )
    for time in {item.start for item in items}:
        active = []
        room = cores = gpus = 0
        for item, unit in zip(items, takes):
            if item.start <= time < item.end:
                active.append((item.room, unit))
                room |= item.room
                cores += item.count * unit[0]
                gpus += item.count * unit[1]
        groups = []
        least_cores, least_gpus = cores, gpus
        for mask, free_cores, free_gpus in free_at(time):
            mask &= room
            if mask:
                ranks = popcount(mask)
                least_cores -= ranks * free_cores
                least_gpus -= ranks * free_gpus
                groups.append((mask, free_cores, free_gpus))
        if least_cores > 0 or least_gpus > 0:
            return True
        for part, units in _by_room(room, active):
            for mask, free_cores, free_gpus in groups:
                ranks = popcount(mask & part)
                if ranks:
                    used_cores, used_gpus = usable(free_cores, free_gpus, units)
                    cores -= ranks * used_cores
                    gpus -= ranks * used_gpus
        if cores > 0 or gpus > 0:
            return True
    return False


def _by_room(room: int, active: list[tuple[int, Unit]]) -> list[tuple[int, tuple[Unit, ...]]]:
    """A mask of ranks by the kinds of unit that have room there."""
    parts: list[tuple[int, tuple[Unit, ...]]] = [(room, ())]
    for own, unit in active:
        cut = []
        for mask, units in parts:
            inside = mask & own
            if inside:
                cut.append((inside, units if unit in units and not unit[2] else (*units, unit)))
            if inside != mask:
                cut.append((mask ^ inside, units))
        parts = cut
    return parts


@lru_cache(maxsize=1 << 14)
def usable(cores: int, gpus: int, units: tuple[Unit, ...]) -> tuple[int, int]:
    """The most cores, and the most GPUs, of what a rank has free that units of some kinds take."""
    # For each number of GPUs, the numbers of cores that can be taken with them, as a mask.
    within = (1 << cores + 1) - 1
    taken = [1] + [0] * gpus
    for unit_cores, unit_gpus, once in units:
        if once:
            for after in range(gpus, unit_gpus - 1, -1):
                taken[after] |= taken[after - unit_gpus] << unit_cores & within
        elif unit_gpus:
            for after in range(unit_gpus, gpus + 1):
                taken[after] |= taken[after - unit_gpus] << unit_cores & within
        elif unit_cores:
            for after, mask in enumerate(taken):
                step = unit_cores
                while step <= cores:
                    mask |= mask << step & within
                    step *= 2
                taken[after] = mask
    most_cores = max([mask.bit_length() for mask in taken]) - 1
    return most_cores, max([after for after, mask in enumerate(taken) if mask])


def _by_demand(room: int, wanted: list[int]) -> list[int]:
    """The parts of a mask that none, one, two, ... of other masks want."""
    levels = [room]
    for mask in wanted:
        levels.append(0)
        for level in range(len(levels) - 1, 0, -1):
            both = levels[level - 1] & mask
            levels[level - 1] ^= both
            levels[level] |= both
    return [level for level in levels if level]


class Effort:
    """Steps that `pack()` may take, each of a microsecond or two.

    A pass over a long queue asks it again and again, and so many passes would take as much more
    time. Therefore what it may take in all is limited: a change of the pool, which is what passes
    are made for, earns STEPS_PER_CHANGE of them, and what is not needed is saved, up to
    MAX_PACKING_STEPS. That many there are at first, too. What a pass does beside, to make promises
    earlier, is counted in such steps as well. Where they are used up, promises stay on the ranks and
    at the times that they have, until the job of one can start at once: it may then start later
    than it could, and no promise is broken.

    Attributes:
        left (int): steps that may be taken
        taken (int): steps that were taken in all
    """

    __slots__ = ("left", "taken")

    def __init__(self) -> None:
        self.left = MAX_PACKING_STEPS
        self.taken = 0

    def earn(self) -> None:
        """The pool has changed."""
        self.left = min(MAX_PACKING_STEPS, self.left + STEPS_PER_CHANGE)

    def spend(self, steps: int) -> None:
        """So many steps are taken."""
        self.left -= steps
        self.taken += steps


def pack(items: list[Item], groups: list[Group], effort: Effort) -> bool:
    """Look through all ways to give the items what they want.

    Args:
        items (list of Item)
        groups (list of Group): the ranks there are, by state.
        effort (Effort): the steps that it may take; those that it took are spent.

    Returns:
        bool: whether there is one; if so, it is in the ``chosen`` of the items. False also if none
        was found in as many steps.
    """
    wanted = tuple([item.count for item in items])
    most_of_all = [0] * len(items)
    useful = []
    for mask, full, free in groups:
        most = _most(items, mask, free)
        if any(most):
            # Of ranks in one state, as many as units are wanted are enough.
            count = min(popcount(mask), sum(wanted))
            most_of_all = [more + count * units for more, units in zip(most_of_all, most)]
            useful.append((mask, count, most, full, free))
    if any(most < units for most, units in zip(most_of_all, wanted)):
        return False
    given: list[tuple[int, list[Vector]]] = []  # a rank, its offers
    several: list[tuple[int, tuple[int, int], list[Vector]]] = []
    for mask, count, most, full, free in useful:
        offers = _offers(items, most, full, free)
        effort.spend(len(offers) * len(items))
        if effort.left < 0:
            return False
        if offers:
            given += [(rank, offers) for rank in members(take(mask, count))]
            several.append((count, full, offers))
    if _too_little(items, several):
        return False
    limit = MAX_PACKING_STEPS if len(given) <= RANKS_FOR_ALL_STEPS else MAX_PACKING_STEPS // 8
    least = effort.left - min(limit, effort.left)
    # What all ranks from one on can give at most, to each item alone.
    rest = [(0,) * len(items)]
    for _, offers in reversed(given):
        each = [max(units) + more for units, more in zip(zip(*offers), rest[-1])]
        rest.append(tuple(map(min, each, wanted)))
    rest.reverse()
    fields = _Fields(wanted)
    encode, guards, bits = fields.encode, fields.guards, fields.bits
    ways: Collection[int] = [encode(wanted)]
    trail: list[Ways] = []
    known: dict[int, list[tuple[int, Vector]]] = {}  # by id, offers with their numbers
    for (rank, offers), most_then in zip(given, rest[1:]):
        steps = len(ways) * len(offers)
        if effort.left - steps < least:
            return False
        effort.spend(steps)
        numbers = known.get(id(offers))
        if numbers is None:
            numbers = known[id(offers)] = [(encode(offer), offer) for offer in offers]
        bound = encode(most_then) | guards
        after: Ways = {}
        for left in ways:
            guarded = left | guards
            for number, offer in numbers:
                # Less what is offered, but not below nothing; and no more than others can give.
                less = guarded - number
                whole = less & guards
                new = less & (whole - (whole >> bits))
                if new not in after and (bound - new) & guards == guards:
                    after[new] = (left, rank, offer)
        trail.append(after)
        if 0 in after:
            _settle(items, trail)
            return True
        ways = fields.best(after)
    return False


def _too_little(
    items: list[Item], several: list[tuple[int, tuple[int, int], list[Vector]]]
) -> bool:
    """Whether at some moment the ranks' offers come to fewer cores or GPUs than the items take.

    Args:
        several: ``(count, full, offers)``: how many ranks have what in all, and offer what
    """
    sizes = {full for _, full, _ in several}
    takes = [[min(each) for each in zip(*map(item.takes, sizes))] for item in items]
    weights = {
        tuple(
            [take[kind] if item.start <= time < item.end else 0 for item, take in zip(items, takes)]
        )
        for time in {item.start for item in items}
        for kind in (0, 1)
    }
    for weight in weights:
        places = [(at, one) for at, one in enumerate(weight) if one]
        if len(places) > 1:
            missing = sum([items[at].count * one for at, one in places])
            for count, _, offers in several:
                missing -= count * max(
                    [sum([offer[at] * one for at, one in places]) for offer in offers]
                )
                if missing <= 0:
                    break
            else:
                return True
    return False


class _Fields:
    """Vectors as whole numbers, so that one operation does for all of their items: each has a field
    of some bits, with one above it that is borrowed from where a field would fall below zero.

    Args:
        wanted (tuple): the largest vector there is
    """

    def __init__(self, wanted: Vector) -> None:
        #: bits of a field, which holds the sum of a vector
        self.bits = sum(wanted).bit_length() + 1
        self._shifts = [at * (self.bits + 1) for at in range(len(wanted))]
        #: the bits above all fields
        self.guards = sum(1 << shift + self.bits for shift in self._shifts)

    def encode(self, vector: Vector) -> int:
        """A vector as a number."""
        return sum(value << shift for value, shift in zip(vector, self._shifts))

    def best(self, ways: Collection[int]) -> Collection[int]:
        """The ways that leave no more of everything than another one; all, if there are very
        many."""
        if len(ways) > 400:
            return ways
        guards = self.guards
        digit = (1 << self.bits + 1) - 1
        best: list[int] = []
        # A number's remainder is the sum of its fields, as in the rule about nines.
        for left in sorted(ways, key=digit.__rmod__):
            guarded = left | guards
            for one in best:
                if (guarded - one) & guards == guards:
                    break
            else:
                best.append(left)
        return best


def _offers(
    items: list[Item], most: list[int], full: tuple[int, int], free: Sequence[Step]
) -> list[Vector]:
    """The vectors of units that a rank can give and that nothing can be added to.

    Args:
        most (list of int): the units that it can give to each item alone
        full, free: as in a Group
    """
    takes = [item.takes(full) for item in items]
    # Moments at which it may become too much: something begins, or less is free. What is left at
    # all of them is one whole number, with a field for the cores and one for the GPUs of each. A
    # field has a guard, a bit above it that is borrowed from where it would fall below zero.
    width = (
        1
        + max(
            sum([units * max(each) for units, each in zip(most, takes)]),
            max([max(cores, gpus) for _, cores, gpus in free]),
        ).bit_length()
    )
    shift = guards = left = 0
    take = [0] * len(items)  # what a unit of each takes, at the moments that it lasts over
    lasts = [0] * len(items)  # the guards of these moments
    guard = 1 << width - 1 | 1 << 2 * width - 1
    step = 0
    for time in sorted({item.start for item in items} | {time for time, _, _ in free}):
        now = [at for at, item in enumerate(items) if most[at] and item.start <= time < item.end]
        if now:
            while step + 1 < len(free) and free[step + 1][0] <= time:
                step += 1
            _, cores, gpus = free[step]
            if cores < 0 or gpus < 0:
                return []
            left |= (cores | gpus << width) << shift
            guards |= guard << shift
            for at in now:
                take[at] |= (takes[at][0] | takes[at][1] << width) << shift
                lasts[at] |= guard << shift
            shift += 2 * width
    # What the items from one on would take at most, and with that a unit more of an earlier one.
    last = len(items)
    later = 0
    blocks: list[list[tuple[int, int, int, int]]] = [[] for _ in range(last + 1)]
    for at in range(last, 0, -1):
        blocks[at] = [
            (other, most[other], later + take[other], lasts[other])
            for other in range(at)
            if most[other]
        ]
        later += most[at - 1] * take[at - 1]
    found: list[Vector] = []
    vector = [0] * last

    def extend(left: int, at: int) -> None:
        """Find the vectors that begin as this one, up to an item."""
        one = take[at]
        units = most[at]
        while units and (left - units * one) & guards != guards:
            units -= 1
        block = blocks[at + 1]
        left -= units * one
        while units >= 0 and len(found) < MAX_OFFERS_PER_RANK:
            vector[at] = units
            # The items to come have to be able to take so much that no other one can have more.
            for other, limit, needed, there in block:
                if vector[other] < limit and (left - needed) & there == there:
                    vector[at] = 0
                    return  # nor with fewer units
            if at + 1 == last:
                found.append(tuple(vector))
            else:
                extend(left, at + 1)
            units -= 1
            left += one
        vector[at] = 0

    extend(left | guards, 0)
    return [one for one in found if any(one)]


def _most(items: list[Item], mask: int, free: Sequence[Step]) -> list[int]:
    """For each item, the units that ranks can give to it alone."""
    most = []
    for item in items:
        if not item.room & mask:
            most.append(0)
            continue
        units = 1
        if item.slots:
            units = min([slots_on(c, g, item.shape) for c, g in _during(free, item)])
        most.append(min(units, item.count))
    return most


def _during(free: Sequence[Step], item: Item) -> Iterator[tuple[int, int]]:
    """Cores and GPUs that are free at the start of an item, and from each step on until its end."""
    before: tuple[int, int] | None = None
    for time, cores, gpus in free:
        if time <= item.start:
            before = (cores, gpus)
        elif time < item.end:
            if before is not None:
                yield before
                before = None
            yield cores, gpus
    if before is not None:
        yield before


def _settle(items: list[Item], trail: list[Ways]) -> None:
    """Go back from where nothing remains to the start, and note which rank gives what."""
    left = 0
    surplus = [-item.count for item in items]
    steps = []
    for after in reversed(trail):
        left, rank, offer = after[left]
        steps.append((rank, offer))
        surplus = [more + units for more, units in zip(surplus, offer)]
    for rank, offer in steps:
        for at, item in enumerate(items):
            # The last ranks may offer more than is wanted.
            less = min(surplus[at], offer[at])
            surplus[at] -= less
            if offer[at] > less:
                item.give(1 << rank, offer[at] - less)
