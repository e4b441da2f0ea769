# SPDX-License-Identifier: LGPL-3.0-or-later
"""Groups of ranks, such as racks: which of them a request is placed in.

A request may have to be together (`Within`): all of it in one group, or in at most a number of groups, or each
*segment* of a number of nodes in one. Any other request is put into as few groups as it can be
(`packed`), so that whole groups stay free, and is never refused on that account.

Both first choose groups by their room, which costs a mask and a count for each group,
and leave the rest to the placement of the pool: it is given the ranks of these groups only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from flux.resource.pool.masks import popcount, take

if TYPE_CHECKING:
    from flux.resource.ResourceCount import ResourceCount

#: Ranks by their room: the number of nodes (1) or slots on each, and the mask of the ranks.
#: No rank is in two of them.
Rooms = list[tuple[int, int]]


class Groups:
    """The groups of one level. Never changed; one object is equal to itself alone, so that shapes
    that name it are told apart quickly.

    Args:
        level (str): the noun for a group: ``rack``
        groups (dict): by the name of a group, mask of its ranks; no rank is in two

    Attributes:
        level (str): as given
        names (list), masks (list): of the groups, in the same order
        ranks (int): mask of the ranks that are in some group
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
        """The names of the groups that some ranks (a mask) are in.  O(groups)."""
        return [name for name, mask in zip(self.names, self.masks) if mask & ranks]

    def rooms(self, rooms: Rooms, most: int, unit: int = 1) -> list[tuple[int, int]]:
        """The room of each group that has some.

        O(groups) for each different number of `rooms`, up to `most`.

        Args:
            rooms (list): ranks by what they have room for
            most (int): how much is asked for: a rank with more counts as one with so much
            unit (int): nodes of a segment

        Returns:
            list of ``(segments, or slots, position of the group)``
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


class Within(NamedTuple):
    """In which groups a request has to be.

    Attributes:
        groups (Groups): the groups of a level
        segment (int): nodes of a segment, all in one group; 1: there are no segments
        most (int or None): the most groups; None: any number
    """

    groups: Groups
    segment: int = 1
    most: int | None = 1

    def best(self, rooms: Rooms, most: int) -> int:
        """How many nodes (or slots) could be placed together, of `most` at most."""
        found = self.groups.rooms(rooms, most, self.segment)
        largest = sorted([room for room, _ in found], reverse=True)[: self.most]
        return min(sum(largest) * self.segment, most)

    def choose(self, rooms: Rooms, count: ResourceCount, idle: int) -> int:
        """Choose ranks on which a placement is as it has to be.

        Args:
            rooms (list): ranks by what they have room for
            count (ResourceCount): how many nodes, or slots, are wanted
            idle (int): mask of the ranks of which nothing is in use

        Returns:
            mask; 0: there is no room.  The fewest groups, of these the fullest
        """
        most = count.min if count.fixed else 1 << 62
        if count.fixed:
            wanted: int | None = count.min
        else:
            wanted = count.floor(self.best(rooms, most))
        if wanted is None:
            return 0
        found = self.groups.rooms(rooms, wanted, self.segment)
        whole = Whole(self.groups.masks, idle)
        picked = fewest(found, wanted // self.segment, self.most, whole)
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
        """The request in words: ``16 nodes in one rack``."""
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
        """How much of it can be together."""
        level = self.groups.level
        if self.segment > 1:
            number = best // self.segment
            return f"there is room for {number}"
        if self.most == 1:
            return f"at most {best} in one {level}"
        return f"at most {best} in {self.most} of them"


class Whole:
    """Whether groups are wholly idle, found out when asked.

    Args:
        masks (list): of the groups
        idle (int): mask of the ranks of which nothing is in use
    """

    __slots__ = ("_masks", "_idle")

    def __init__(self, masks: list[int], idle: int) -> None:
        self._masks = masks
        self._idle = idle

    def __call__(self, at: int) -> bool:
        mask = self._masks[at]
        return mask & self._idle == mask


def fewest(
    found: list[tuple[int, int]], wanted: int, most: int | None, whole: Whole
) -> list[tuple[int, int]]:
    """The fewest groups that have room, among as few the fullest.

    Args:
        found (list): ``(room, position)`` of groups
        wanted (int): how much room is needed
        most (int or None): the most groups
        whole: whether the group of a position is wholly idle: such are taken last

    Returns:
        list of ``(how much of it, position)``; empty: there is no room
    """
    left = wanted
    picked: list[tuple[int, int]] = []
    by_room = sorted(found, key=lambda one: (one[0], -one[1]))
    while by_room and len(picked) != most:
        if by_room[-1][0] >= left:
            fitting = [(room, at) for room, at in by_room if room >= left]
            _, at = min(fitting, key=lambda one: (whole(one[1]), one))
            picked.append((left, at))
            return picked
        room, at = by_room.pop()
        picked.append((room, at))
        left -= room
    return []


def packed(levels: Iterable[Groups], idle: int, count: ResourceCount, rooms: Rooms) -> int:
    """The ranks that a request is best given so that whole groups stay free: those of the fewest
    groups that have room for all of it, level by level, the largest groups first.

    Args:
        levels: groups; the largest first
        idle (int): mask of the ranks of which nothing is in use
        count (ResourceCount): how many nodes, or slots, are wanted
        rooms (list): ranks by what they have room for

    Returns:
        mask; 0: that makes no difference
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
    """Choose `count` of some ranks in as few groups as can be; fewer if there are fewer.

    O(groups).

    Args:
        levels: groups; the largest first
        idle (int): mask of the ranks that count as not in use: groups of only such are taken last
        ranks (int): mask of the ranks to choose from
        count (int): how many
        beside (int): mask of ranks whose groups come before all others, since the choice is to be
            together with these

    Returns:
        mask; of equal ranks the lowest
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
    """The ranks of the fewest groups with room for `count` nodes (or slots); see `packed`."""
    chosen = -1
    if wanted == 1 and len(rooms) > 1:  # any of the ranks holds it
        every = 0
        for _, mask in rooms:
            every |= mask
        rooms = [(1, every)]
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
        picked = fewest(found, wanted, None, Whole(masks, idle))
        if not picked:
            return 0
        ranks = 0
        for _, at in picked:
            ranks |= masks[at]
        chosen &= ranks
        rooms = [(number, mask & ranks) for number, mask in rooms if mask & ranks]
    return chosen
