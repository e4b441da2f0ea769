# SPDX-License-Identifier: LGPL-3.0-or-later
"""The inventory of a pool: ranks, their cores and GPUs, hosts and properties.

An ``Inventory`` is immutable. When ranks leave or properties change, a new one is made. Copies of a
pool share theirs, with all that was derived from it.

Units
    The cores and GPUs of a rank are one mask, its *units*: core *i* is bit *i*, GPU *i* is bit
    ``shift + i``. ``shift`` is the same for the whole inventory, so ``units & core_mask`` are
    cores. Steps of amounts (memory, see ``amounts.py``) are the bits above the GPUs.

Selections
    A *selection* is an allocation from an inventory: a flat tuple ``(ranks, units, ranks, units,
    ...)``, with just these units on each of the ranks. ``ranks`` is the number of one rank, or the
    complement (``~``) of a mask of several, which is negative. A single rank is a number since most
    jobs are on one, and a mask is as long as the cluster. A rank occurs in one pair only; the order
    of pairs has no meaning.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from flux.resource.pool.amount_kinds import AmountKind, NodeAmounts
from flux.resource.pool.constraint import Terms
from flux.resource.pool.hosts import (
    NameForm,
    Piece,
    elements,
    encode_pieces,
    group_text,
    name_pieces,
    spans_of,
)
from flux.resource.pool.masks import (
    bracketed,
    clip_idset,
    idset_text,
    lowest,
    popcount,
    quote,
    runs,
    take,
)
from flux.resource.request import Remembered

#: Maximum number of ranks stored one by one instead of as a mask longer than LONG_MASK (more than
#: 1,000 ranks): four small integers take less memory than one as long as the cluster.
MAX_SEPARATE_RANKS = 4
LONG_MASK = 1 << 1000

#: ``(ranks, units, ranks, units, ...)``
Selection = tuple[int, ...]
#: ``(rank mask, core mask, GPU mask)``
Entry = tuple[int, int, int]
#: Numbers of cores, GPUs, and steps of each amount.
Counts = tuple[int, ...]


class AmountBits(NamedTuple):
    """Position of an amount's steps in the units of an inventory.

    Attributes:
        kind (AmountKind): the amount
        shift (int): bit of its first step
        mask (int): mask of its steps, shifted to bit 0
        base (int): base of its digit in a key: the number of its steps, plus one
    """

    kind: AmountKind
    shift: int
    mask: int
    base: int


def pairs(selection: Selection) -> Iterator[tuple[int, int]]:
    """Yield ``(rank mask, units)`` of a selection."""
    for ranks, units in zip(selection[::2], selection[1::2]):
        yield (1 << ranks if ranks >= 0 else ~ranks), units


def select(groups: dict[int, int]) -> Selection:
    """Return a selection made from a dict of units to mask of ranks."""
    chosen: list[int] = []
    for units, mask in groups.items():
        # A few high ranks take less memory one by one than as a mask.
        if mask > LONG_MASK and popcount(mask) <= MAX_SEPARATE_RANKS:
            while mask:
                rank = mask.bit_length() - 1
                mask ^= 1 << rank
                chosen += (rank, units)
        elif mask:
            chosen += (mask.bit_length() - 1 if mask & (mask - 1) == 0 else ~mask, units)
    return tuple(chosen)


def common(one: Selection, other: Selection) -> Selection:
    """Return the units that are in both selections."""
    groups: dict[int, int] = {}
    for ranks, units in pairs(one):
        for some, wanted in pairs(other):
            if units & wanted and ranks & some:
                groups[units & wanted] = groups.get(units & wanted, 0) | ranks & some
    return select(groups)


def selected_ranks(selection: Selection) -> int:
    """Return a mask of all ranks of a selection."""
    mask = 0
    for ranks in selection[::2]:
        mask |= 1 << ranks if ranks >= 0 else ~ranks
    return mask


def totals(selection: Selection, key: Callable[[int], int] = int) -> dict[int, int]:
    """Return {key of units: mask of ranks} of a selection."""
    found: dict[int, int] = {}
    for mask, units in pairs(selection):
        value = key(units)
        found[value] = found.get(value, 0) | mask
    return found


class HostNames:
    """The host name of each rank. Made once per inventory, and shared by the copies of a pool.

    Args:
        ranks (int): mask of the ranks.
        nodelist: list of hostlists, in the order of the ranks; None: rank 7 is called ``rank7``.

    Raises:
        ValueError: a bad hostlist, or not as many hosts as ranks.
    """

    def __init__(self, ranks: int, nodelist: Any) -> None:
        self._ranks = ranks
        self.named = nodelist is not None
        names: list[Piece] = []
        self._names = names
        if nodelist is None:
            return
        if not isinstance(nodelist, (list, tuple)):
            raise ValueError(f"execution.nodelist: expected an array, got {quote(nodelist)}")
        for text in nodelist:
            names += name_pieces(text)
        hosts = sum([piece[3] for piece in names])
        if hosts != popcount(ranks):
            raise ValueError(f"execution.nodelist: {hosts} hosts for {popcount(ranks)} ranks")

    @cached_property
    def _paired(self) -> tuple[list[int], list[Piece]]:
        """The first ranks of the runs, ascending, and their pieces of names."""
        spans = runs(self._ranks)
        if self.named:
            return _pair(spans, self._names)
        return [low for low, _ in spans], [("rank", 0, low, count) for low, count in spans]

    def name(self, rank: int) -> str:
        """Return the host name of a rank of the pool."""
        starts, pieces = self._paired
        at = bisect_right(starts, rank) - 1
        prefix, width, low, _ = pieces[at]
        if width is None:
            return prefix
        return f"{prefix}{low + rank - starts[at]:0{width}d}"

    def hostlist(self, ranks: int) -> str:
        """Return the hostlist text of a mask of ranks, in rank order."""
        starts, pieces = self._paired
        prefix, width, first, _ = pieces[0] if len(pieces) == 1 and ranks else ("", None, 0, 0)
        if width is not None:  # numbered as the ranks are
            first -= starts[0]
            if first >= 0 and (width < 2 or lowest(ranks) + first >= 10 ** (width - 1)):
                return prefix + bracketed(ranks << first)  # no number is padded
            spans = [(first + low, first + low + count - 1, width) for low, count in runs(ranks)]
            return group_text(prefix, spans)
        chosen = []
        for low, count in runs(ranks):
            at = bisect_right(starts, low) - 1
            while count:
                prefix, width, first, size = pieces[at]
                offset = low - starts[at]
                part = min(count, size - offset)
                chosen.append((prefix, width, first + offset, part))
                low += part
                count -= part
                at += 1
        return encode_pieces(chosen)

    def find(self, text: str) -> int:
        """Return a mask of the ranks whose host is in a hostlist; unknown names are ignored.

        Raises:
            ValueError: it is not a hostlist.
        """
        mask = 0
        forms = self._by_form
        for element in elements(text):
            for form, low, high in spans_of(*element):
                for series in forms.get(form, ()):
                    mask |= series.between(low, high)
        return mask

    @cached_property
    def _by_form(self) -> dict[NameForm, list[_Series]]:
        """All names by form. O(pieces of names) the first time."""
        forms: dict[NameForm, list[_Series]] = {}
        for start, (prefix, width, first, count) in zip(*self._paired):
            for form, low, high in spans_of(prefix, width, first, first + count - 1, ""):
                known = forms.setdefault(form, [])
                if not known or low < known[-1].highs[-1]:
                    known.append(_Series())
                known[-1].add(start, low, high)
                start += high - low + 1
        return forms


class _Series:
    """Ranks with names of one form, by the numbers in these: two searches find all ranks between
    two numbers.
    """

    __slots__ = ("lows", "highs", "ranks", "mask")

    def __init__(self) -> None:
        self.lows: list[int] = []
        self.highs: list[int] = []
        self.ranks: list[int] = []  # first rank of each run
        self.mask = 0

    def add(self, rank: int, low: int, high: int) -> None:
        """Add a run of ranks, named with the numbers from ``low`` to ``high``."""
        self.lows.append(low)
        self.highs.append(high)
        self.ranks.append(rank)
        self.mask |= ((1 << (high - low + 1)) - 1) << rank

    def between(self, low: int, high: int) -> int:
        """Return a mask of the ranks with numbers from ``low`` to ``high``.  O(log runs) and one
        mask."""
        first = bisect_left(self.highs, low)
        last = bisect_right(self.lows, high) - 1
        if first > last:
            return 0
        begin = self.ranks[first] + max(low - self.lows[first], 0)
        end = self.ranks[last] + min(high, self.highs[last]) - self.lows[last]
        return self.mask & ((1 << (end - begin + 1)) - 1) << begin


def _pair(
    spans: Iterable[tuple[int, int]], names: Iterable[Piece]
) -> tuple[list[int], list[Piece]]:
    """Divide runs of ranks and pieces of names so that they correspond."""
    starts = []
    pieces: list[Piece] = []
    source = iter(names)
    prefix, width, low, left = "", None, 0, 0  # the rest of a piece
    for rank, count in spans:
        while count:
            if not left:
                prefix, width, low, left = next(source)
            part = min(left, count)
            starts.append(rank)
            pieces.append((prefix, width, low, part))
            rank += part
            count -= part
            left -= part
            low += part
    return starts, pieces


class Inventory:
    """Ranks with their resources.

    Args:
        groups (dict): units to mask of the ranks with just these.
        shift (int): first GPU bit of units.
        hosts (HostNames): host of each rank.
        properties (dict): name to mask of ranks.
        key_base (int or None): as below; None: as needed.
        amounts (tuple): AmountBits of each amount.

    Attributes:
        ranks (int): mask of all ranks.
        kinds (dict): units to mask of the ranks with just these: the kinds of rank.
        keys (dict): units of each kind to its key when wholly free (see ``key()``).
        key_base (int): weight of a core in a key.
        shift (int): first GPU bit of units.
        core_mask (int): mask of the core bits of units.
        amounts (tuple): AmountBits of each amount; empty if none are counted.
        compute_mask (int): mask of the core and GPU bits of units; -1 if there are no others.
        hosts (HostNames): host of each rank.
        properties (dict): name to mask of ranks.
        verdicts (dict): shape to the reason why it can never be placed (None: it can), filled by
            the pools that share the inventory.
    """

    def __init__(
        self,
        groups: dict[int, int],
        shift: int,
        hosts: HostNames,
        properties: dict[str, int],
        key_base: int | None = None,
        amounts: tuple[AmountBits, ...] = (),
    ) -> None:
        self.kinds = groups
        self.shift = shift
        self.core_mask = (1 << shift) - 1
        self.amounts = amounts
        self.compute_mask = (1 << amounts[0].shift) - 1 if amounts else -1
        self.hosts = hosts
        self.properties = properties
        self.ranks = 0
        for mask in groups.values():
            self.ranks |= mask
        #: the index made of it by `state.unused`
        self.unused: Any = None
        # The counts of a rank's free units are one number, its key: cores * key_base + GPUs, plus
        # one digit per amount, so that keys sort in worst-fit order. The base stays when ranks
        # leave, which keeps the keys of an index valid.
        if key_base is None:
            key_base = 1 + max([popcount(self.gpus(units)) for units in groups], default=0)
            for one in amounts:
                key_base *= one.base
        self.key_base = key_base
        #: key of each kind of rank when wholly free
        self.keys = {units: self.key(units) for units in groups}
        self.matches: Remembered[Any, int] = Remembered()
        self.verdicts: Remembered[Any, str | None] = Remembered()

    @cached_property
    def full(self) -> list[int]:
        """The units of each rank in full, by rank; 0 for ranks not in the inventory."""
        full = [0] * self.ranks.bit_length()
        for units, mask in self.kinds.items():
            for low, count in runs(mask):
                full[low : low + count] = [units] * count
        return full

    def gpus(self, units: int) -> int:
        """Return a mask of the GPUs in a mask of units."""
        return (units & self.compute_mask) >> self.shift

    def cores_and_gpus(self, units: int) -> tuple[int, int]:
        """Return the numbers of cores and GPUs in a mask of units."""
        return (
            popcount(units & self.core_mask),
            popcount((units & self.compute_mask) >> self.shift),
        )

    def key(self, units: int) -> int:
        """Return the key of a mask of units: its counts as one number."""
        if not self.amounts:
            return popcount(units & self.core_mask) * self.key_base + popcount(units >> self.shift)
        cores, rest, *amounts = self.counts_of(units)
        for one, steps in zip(self.amounts, amounts):
            rest = rest * one.base + steps
        return cores * self.key_base + rest

    def counts(self, key: int) -> Counts:
        """Return the counts in a key: cores, GPUs and the steps of each amount."""
        if not self.amounts:
            return divmod(key, self.key_base)
        cores, rest = divmod(key, self.key_base)
        amounts = []
        for one in reversed(self.amounts):
            rest, steps = divmod(rest, one.base)
            amounts.append(steps)
        return (cores, rest, *reversed(amounts))

    def counts_of(self, units: int) -> Counts:
        """Return the counts of a mask of units."""
        amounts = [popcount(units >> shift & mask) for _, shift, mask, _ in self.amounts]
        return (*self.cores_and_gpus(units), *amounts)

    def padded(self, need: Counts) -> Counts:
        """Return counts of a request, which may lack amounts, with all amounts counted here."""
        return need + (0,) * (2 + len(self.amounts) - len(need))

    def take_amounts(self, free: int, steps: tuple[int, ...]) -> int:
        """Return free units with some steps of each amount; fewer if fewer are free."""
        units = 0
        for (_, shift, mask, _), number in zip(self.amounts, steps):
            there = free >> shift & mask
            units |= take(there, min(number, popcount(there))) << shift
        return units

    def matching(self, terms: Terms | None) -> int:
        """Return a mask of the ranks that meet a parsed constraint (None: all).

        O(terms) operations on masks, O(1) for a known constraint.
        """
        if terms is None:
            return self.ranks
        if terms.found is not None and terms.found[0] is self:
            return terms.found[1]
        mask = self.matches.get(terms)
        if mask is None:
            mask = self.matches[terms] = matching_ranks(terms, self)
        terms.found = self, mask
        return mask

    def whole(self) -> Selection:
        """Return everything as a selection. O(kinds of rank)."""
        return select(self.kinds)

    def without(self, ranks: int) -> Inventory:
        """Return the inventory without a mask of ranks. O(kinds of rank + properties)."""
        keep = self.ranks & ~ranks
        kinds = {units: mask & keep for units, mask in self.kinds.items() if mask & keep}
        properties = {name: mask & keep for name, mask in self.properties.items()}
        return Inventory(
            kinds, self.shift, self.hosts, _present(properties), self.key_base, self.amounts
        )

    def with_property(self, name: str, ranks: int) -> Inventory:
        """Return the inventory with a property on just these ranks (a mask)."""
        new = Inventory.__new__(Inventory)
        new.__dict__ = {**self.__dict__, "unused": None}
        new.properties = _present({**self.properties, name: ranks & self.ranks})
        new.matches, new.verdicts = Remembered(), Remembered()
        return new

    def with_amounts(self, amounts: NodeAmounts) -> Inventory:
        """Return the inventory with other amounts on its ranks."""
        at = max([(units & self.compute_mask).bit_length() for units in self.kinds], default=0)
        bits = []
        for kind in amounts.kinds:
            bits.append(AmountBits(kind, at, (1 << kind.most) - 1, kind.most + 1))
            at += kind.most
        groups: dict[int, int] = {}
        for units, ranks in self.kinds.items():
            for mask, steps in amounts.parts(ranks):
                own = units & self.compute_mask
                for one, number in zip(bits, steps):
                    own |= ((1 << number) - 1) << one.shift
                groups[own] = groups.get(own, 0) | mask
        return Inventory(groups, self.shift, self.hosts, self.properties, None, tuple(bits))

    def part(self, selection: Selection) -> Inventory:
        """Return the inventory of just a selection."""
        ranks = selected_ranks(selection)
        return Inventory(
            totals(selection), self.shift, self.hosts, self.properties_of(ranks), None, self.amounts
        )

    def properties_of(self, ranks: int) -> dict[str, int]:
        """Return the properties of a mask of ranks, without those local to the instance."""
        found = {name: mask & ranks for name, mask in self.properties.items() if name[:1] != "+"}
        return _present(found)

    def children(self, units: int) -> dict[str, str]:
        """Return ``children`` of an R_lite entry."""
        cores = units & self.core_mask
        gpus = self.gpus(units)
        if gpus:
            if cores:
                return {"core": idset_text(cores), "gpu": idset_text(gpus)}
            return {"gpu": idset_text(gpus)}
        return {"core": idset_text(cores)}

    def lite(self, selection: Selection) -> list[dict[str, Any]]:
        """Return ``R_lite`` of a selection: equal children together, by lowest rank. O(length of
        its text).
        """
        if len(selection) == 2:
            ranks, units = selection
            text = f"{ranks}" if ranks >= 0 else idset_text(~ranks)
            return [{"rank": text, "children": self.children(units)}]
        if self.amounts:
            selection = select(totals(selection, lambda units: units & self.compute_mask))
        return [
            {"rank": idset_text(mask), "children": self.children(units)}
            for mask, units in self.grouped(selection)
        ]

    def amounts_of(self, selection: Selection) -> dict[str, dict[str, Any]]:
        """Return the amounts of a selection, for R: name to {idset of ranks: amount of each}."""
        found = {}
        for kind, shift, mask, _ in self.amounts:
            by_steps = totals(selection, lambda units: popcount(units >> shift & mask))
            values = {idset_text(m): kind.value(steps) for steps, m in by_steps.items() if steps}
            if values:
                found[kind.name] = values
        return found

    def execution(
        self,
        selection: Selection,
        starttime: float = 0.0,
        expiration: float = 0.0,
        local: bool = True,
    ) -> dict[str, Any]:
        """Return ``execution`` of an R object for a selection, without hosts.

        Args:
            selection (tuple): the units.
            starttime, expiration (float): seconds since the epoch, 0: none.
            local (bool): include the instance's own properties, with names that begin with ``+``.
        """
        execution = {
            "R_lite": self.lite(selection),
            "starttime": starttime,
            "expiration": expiration,
        }
        if self.properties:
            ranks = selected_ranks(selection)
            properties = {
                name: idset_text(mask & ranks)
                for name, mask in sorted(self.properties.items())
                if mask & ranks and (local or name[:1] != "+")
            }
            if properties:
                execution["properties"] = properties
        return execution

    def grouped(self, selection: Selection) -> list[tuple[int, int]]:
        """Return ``(rank mask, units)`` of a selection: one pair per units, by lowest rank."""
        if len(selection) == 2:
            return list(pairs(selection)) if selection[1] else []
        groups = totals(selection)
        order = sorted([(lowest(mask), mask, units) for units, mask in groups.items() if units])
        return [(mask, units) for _, mask, units in order]

    def dumps(self, selection: Selection) -> str:
        """Return a selection as short text: ``rank[0-1]/core[0-3],gpu0 rank2/core5``."""
        parts = []
        for mask, units in self.grouped(selection):
            cores = units & self.core_mask
            gpus = self.gpus(units)
            named = ["core" + bracketed(cores)] if cores else []
            if gpus:
                named.append("gpu" + bracketed(gpus))
            for kind, shift, bits, _ in self.amounts:
                steps = popcount(units >> shift & bits)
                if steps:
                    named.append(f"{kind.name}={kind.value(steps)}")
            parts.append(f"rank{bracketed(mask)}/{','.join(named)}")
        return " ".join(parts)


def _present(properties: dict[str, int]) -> dict[str, int]:
    return {name: mask for name, mask in properties.items() if mask}


def matching_ranks(terms: tuple[str, Any], inventory: Inventory) -> int:
    """Return a mask of the ranks of an inventory that meet a constraint.

    An empty ``or`` is false, as in flux-core's schedulers, although RFC 31 allows true. An empty
    ``not`` is false as well.
    """
    name, values = terms
    everything = inventory.ranks
    if name == "properties":
        mask = everything
        properties = inventory.properties
        for value in values:
            if value[0] == "^":
                mask &= ~properties.get(value[1:], 0)
            else:
                mask &= properties.get(value, 0)
        return mask
    if name == "mask":
        return values & everything  # type: ignore[no-any-return]
    mask = 0
    if name == "hostlist":
        for value in values:
            mask |= inventory.hosts.find(value)
    elif name == "ranks":
        for value in values:
            mask |= clip_idset(value, everything.bit_length())
    elif name == "or":
        for value in values:
            mask |= matching_ranks(value, inventory)
    else:
        mask = everything
        for value in values:
            mask &= matching_ranks(value, inventory)
        if name == "not":
            mask = everything & ~mask
    return mask & everything


def make_inventory(entries: list[Entry], hosts: HostNames, properties: dict[str, int]) -> Inventory:
    """Make an Inventory from entries, hosts and properties of R."""
    shift = max([cores.bit_length() for _, cores, _ in entries], default=0)
    groups: dict[int, int] = {}
    for ranks, cores, gpus in entries:
        units = cores | gpus << shift
        if units:  # ranks without units only count for the list of hosts
            groups[units] = groups.get(units, 0) | ranks
    return Inventory(groups, shift, hosts, properties)
