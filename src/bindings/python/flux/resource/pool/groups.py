# SPDX-License-Identifier: LGPL-3.0-or-later
"""Groups of ranks, such as racks, and the choice of groups for a request.

A request may be bound to groups (`GroupBinding`): all of it to one group, or to a limited number of
groups, or each *segment* (a number of nodes) to one. Any other request gets as few groups as
possible (`packed`), so that whole groups stay free, and is never refused because of them.

Groups are chosen by their room, for a mask and a count per group; placement then gets only the
ranks of these groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flux.resource.pool.masks import popcount, ranks_in, take
from flux.resource.ResourceCount import ResourceCount

#: Ranks by their room: the number of nodes (1) or slots on each rank, and a mask of the ranks. No
#: rank is in two entries.
Rooms = list[tuple[int, int]]


class Groups:
    """The groups of one level. Immutable; compared by identity, so that shapes that name them
    compare quickly.

    Args:
        level (str): noun for a group: ``rack``
        groups (dict): name of a group to mask of its ranks; no rank is in two

    Attributes:
        level (str): as given
        names (list), masks (list): names and masks of the groups, in the same order
        ranks (int): mask of all ranks in groups
    """

    __slots__ = ("level", "names", "masks", "ranks")

    def __init__(self, level: str, groups: dict[str, int]) -> None:
        self.level = level
        self.names = list(groups)
        self.masks = list(groups.values())
        self.ranks = 0
        for mask in self.masks:
            self.ranks |= mask

    def names_of(self, ranks: int) -> list[str]:
        """Return the names of the groups of some ranks (a mask).  O(groups)."""
        return [name for name, mask in zip(self.names, self.masks) if mask & ranks]

    def rooms(self, rooms: Rooms, most: int, unit: int = 1) -> list[tuple[int, int]]:
        """Return ``(segments or slots, index)`` of the groups with room.

        O(groups) for each different number in `rooms`, up to `most`: a rank with more counts for this.
        `unit`: nodes of a segment.
        """
        by_number: dict[int, int] = {}
        for number, mask in rooms:
            number = min(number, most)
            by_number[number] = by_number.get(number, 0) | mask
        found = []
        parts = list(by_number.items())
        for at, group in enumerate(self.masks):
            room = 0
            for number, mask in parts:
                mask &= group
                if mask:
                    room += number * popcount(mask)
            room //= unit
            if room:
                found.append((room, at))
        return found


class GroupBinding(NamedTuple):
    """The groups that a request is bound to.

    Attributes:
        groups (Groups): groups of a level
        segment (int): nodes of a segment, all in one group; 1: no segments
        most (int or None): maximum number of groups; None: no limit
    """

    groups: Groups
    segment: int = 1
    most: int | None = 1

    def best(self, rooms: Rooms, most: int) -> int:
        """Return the number of nodes (or slots), at most `most`, that could be placed together."""
        found = self.groups.rooms(rooms, most, self.segment)
        largest = sorted([room for room, _ in found], reverse=True)[: self.most]
        return min(sum(largest) * self.segment, most)

    def choose(self, rooms: Rooms, count: ResourceCount, idle: int) -> int:
        """Return a mask of the ranks of the fewest groups with room for a count of nodes or slots, of these
        the fullest; 0 if there is no room. `idle`: mask of ranks without any use."""
        most = count.min if count.fixed else 1 << 62
        if count.fixed:
            wanted: int | None = count.min
        else:
            wanted = count.floor(self.best(rooms, most))
        if wanted is None:
            return 0
        found = self.groups.rooms(rooms, wanted, self.segment)
        picked = fewest(found, wanted // self.segment, self.most, self.groups.masks, idle)
        ranks = 0
        for segments, at in picked:
            group = self.groups.masks[at]
            if self.segment == 1:
                ranks |= group
                continue
            left = segments * self.segment
            for _, mask in rooms:
                some = mask & group
                if some:
                    some = take(some, min(left, popcount(some)))
                    ranks |= some
                    left -= popcount(some)
                if not left:
                    break
        return ranks

    def text(self, count: int, unit: str) -> str:
        """Return the request as text: ``16 nodes in one rack``."""
        level = self.groups.level
        if self.segment > 1:
            number = count // self.segment
            text = f"{number} segment{'s' if number > 1 else ''} of {self.segment} nodes"
            text += f", each in one {level}" if number > 1 else f" in one {level}"
            return text if self.most is None else f"{text}, in at most {self.most} of them"
        nodes = f"{count} {unit if count > 1 else unit[:-1]}"
        if self.most == 1:
            return f"{nodes} in one {level}"
        return nodes if self.most is None else f"{nodes} in at most {self.most} of level {level}"

    def best_text(self, best: int) -> str:
        """Return, as text, how much can be placed together."""
        level = self.groups.level
        if self.segment > 1:
            number = best // self.segment
            return f"there is room for {number}"
        if self.most == 1:
            return f"at most {best} in one {level}"
        return f"at most {best} in {self.most} of them"


def fewest(
    found: list[tuple[int, int]], wanted: int, most: int | None, masks: list[int], idle: int
) -> list[tuple[int, int]]:
    """Return ``(room used, index)`` of the fewest groups with enough room, of these the fullest; empty
    if there is no room.

    `found` has ``(room, index)`` of groups, `masks` their ranks. At most `most` groups are taken (None:
    no limit), those of only `idle` ranks, without any use, last.
    """
    left = wanted
    picked: list[tuple[int, int]] = []
    by_room = sorted(found, key=lambda one: (one[0], -one[1]))
    while by_room and len(picked) != most:
        if by_room[-1][0] >= left:
            fitting = [(not masks[at] & ~idle, room, at) for room, at in by_room if room >= left]
            picked.append((left, min(fitting)[2]))
            return picked
        room, at = by_room.pop()
        picked.append((room, at))
        left -= room
    return []


def packed(levels: Iterable[Groups], idle: int, count: ResourceCount, rooms: Rooms) -> int:
    """Return a mask of the ranks for a request that leave whole groups free; 0 if it makes no difference.

    Level by level, the largest groups first, these are the ranks of the fewest groups with room for all
    of it. `idle`: mask of ranks without any use; `count`: the wanted number of nodes or slots.
    """
    if count.fixed:
        wanted: int | None = count.min
    else:
        wanted = count.floor(sum([number * popcount(mask) for number, mask in rooms]))
    if wanted is None or not rooms:
        return 0
    return _packed(levels, idle, rooms, wanted)


def choose_nodes(
    levels: Sequence[Groups], idle: int, ranks: int, count: int, beside: int = 0
) -> int:
    """Return `count` of some ranks (a mask), or all if there are fewer, in as few groups as possible,
    with the lowest of equal ranks. O(groups).

    `levels`: groups, the largest first; those of only `idle` ranks are taken last, those with ranks of
    `beside` first.
    """
    chosen = 0
    for groups in reversed(levels) if beside else ():
        near = 0
        for mask in groups.masks:
            if mask & beside:
                near |= mask & ranks
        if popcount(chosen | near) >= count:
            ranks = near
            break
        chosen |= near
    ranks &= ~chosen
    left = min(count - popcount(chosen), popcount(ranks))
    if left <= 0:
        return chosen
    return chosen | take(ranks & (_packed(levels, idle, [(1, ranks)], left) or -1), left)


def _packed(levels: Iterable[Groups], idle: int, rooms: Rooms, wanted: int) -> int:
    """Return the ranks of the fewest groups with room for `wanted` nodes (or slots); see
    `packed`."""
    chosen = -1
    if wanted == 1 and len(rooms) > 1:  # any of the ranks will do
        rooms = [(1, ranks_in(rooms))]
    for groups in levels:
        masks = groups.masks
        found = groups.rooms(rooms, wanted)
        outside = [(number, mask & ~groups.ranks) for number, mask in rooms if mask & ~groups.ranks]
        room = sum([number * popcount(mask) for number, mask in outside])
        if room >= wanted:
            rooms = outside  # nodes without a group do not serve requests for one
            chosen &= ~groups.ranks
            continue
        if room:
            masks = [*masks, ~groups.ranks]
            found.append((room, len(masks) - 1))
        picked = fewest(found, wanted, None, masks, idle)
        if not picked:
            return 0
        ranks = 0
        for _, at in picked:
            ranks |= masks[at]
        chosen &= ranks
        rooms = [(number, mask & ranks) for number, mask in rooms if mask & ranks]
    return chosen
