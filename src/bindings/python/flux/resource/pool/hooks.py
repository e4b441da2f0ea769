# SPDX-License-Identifier: LGPL-3.0-or-later
"""The hooks of ``Rv1Pool``, by which sites order or choose candidates.

They work on Python sets, made at each attempt, except in a pool that overrides no hook.
"""

from __future__ import annotations

import marshal
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from flux.resource.errors import InsufficientResources
from flux.resource.pool.inventory import Selection, select
from flux.resource.pool.masks import UNIT_LIMIT, members, popcount, quote, take
from flux.resource.pool.placement import check_placed, slots_by_amounts, slots_on, with_amounts
from flux.resource.pool.state import RankIndex
from flux.resource.request import ResourceRequest, Shape
from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation


@lru_cache(maxsize=1024)
def ids_of(mask: int) -> frozenset[int]:
    """Return a frozenset of the members of a mask."""
    return frozenset(members(mask))


def mask_of_ids(ids: Any) -> int:
    """Return a mask of ids; raise an exception if they are not ids."""
    mask = 0
    for one in ids or ():
        if one >= UNIT_LIMIT:
            raise ValueError
        mask |= 1 << one
    return mask


#: System attributes that differ between jobs of a series, and by which no hook chooses.
OF_ONE_JOB = frozenset(("duration", "cwd", "environment"))


def hash_of_attributes(jobspec: Any) -> int:
    """Return a hash of the attributes of a jobspec by which a hook may choose. Raises ValueError if
    they are nested too deeply."""
    attributes = jobspec.get("attributes")
    system = attributes.get("system") if isinstance(attributes, dict) else None
    if isinstance(system, dict):
        own = {name: value for name, value in system.items() if name not in OF_ONE_JOB}
        attributes = {**attributes, "system": own}
    try:
        return hash(marshal.dumps(attributes, 2))
    except ValueError:
        raise ValueError("jobspec is nested too deeply") from None


class Hooks(ResourcePoolImplementation):
    """The steps of an allocation that a subclass of ``Rv1Pool`` may override."""

    #: Whether ``_select_resources()`` is overridden, so that its choice may depend on a whole request.
    sees_requests = False
    #: Whether it was logged that ``_select_resources()`` returned None.
    _is_none_logged = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.sees_requests = cls._select_resources is not Hooks._select_resources
        cls.hooked = cls.sees_requests or cls._sort_candidates is not Hooks._sort_candidates

    def _sort_candidates(self, candidates: list[Any]) -> list[Any]:
        """Order the candidates.

        Args:
            candidates (list): tuples ``(rank, info, free_cores, free_gpus)``: ``info`` is a
                read-only mapping with ``hostname``, ``cores``, ``gpus`` and ``up``; ``cores``,
                ``gpus`` and the last two elements are frozensets of ids. Where amounts are
                counted, ``amounts`` are their free steps.

        Returns:
            The candidates in the order of trial. The default is most free cores, then most free
            GPUs, then most of the amounts (with ``best_fit``, as in TreePool, fewest of each), then
            lowest rank.

        Raises:
            InsufficientResources: the request does not fit on them now
        """
        sign = 1 if self.placement.best_fit else -1

        def preference(candidate: Any) -> Any:
            rank, info, cores, gpus = candidate
            counts = len(cores), len(gpus), *info.get("amounts", ())
            return [sign * count for count in counts], rank

        return sorted(candidates, key=preference)

    def _select_resources(self, candidates: list[Any], request: ResourceRequest) -> Any:
        """Choose resources from the ordered candidates.

        Args:
            candidates (list): from ``_sort_candidates()``.
            request (ResourceRequest): the job's request.

        Returns:
            ``(selected, nslots)``: ``selected`` is a list of ``(rank, cores, gpus)`` with the ids
            taken on each; empty if the request does not fit now.

        Raises:
            InsufficientResources: likewise
        """
        shape = request.shape
        rooms = [(one, self._room(one, shape)) for one in candidates]
        if shape.node_count is None:
            wanted = shape.slot_count.floor(sum([room for _, room in rooms]))
            if wanted is None:
                return [], 0
            selected = []
            left = wanted
            for one, room in rooms:
                slots = min(room, left)
                if slots:
                    selected.append(self._chosen(one, shape, slots))
                    left -= slots
            return selected, wanted
        least = shape.slot_count.min
        rooms = [(one, room) for one, room in rooms if room >= least]
        nodes = shape.node_count.floor(len(rooms))
        if nodes is None:
            return [], 0
        slots = shape.slot_count.floor(sorted([room for _, room in rooms])[-nodes]) or least
        able = [one for one, room in rooms if room >= slots]
        selected = [self._chosen(one, shape, slots) for one in able[:nodes]]
        return selected, shape.slots_given(nodes, slots)

    def _room(self, candidate: Any, shape: Shape) -> int:
        """Return the number of slots that fit on a candidate."""
        _, info, cores, gpus = candidate
        return slots_on((len(cores), len(gpus), *info.get("amounts", ())), shape)

    def _chosen(self, candidate: Any, shape: Shape, slots: int) -> Any:
        """Return ``(rank, cores, gpus)`` for some slots on a candidate."""
        rank, info, cores, gpus = candidate
        if shape.exclusive:
            return rank, info["cores"], info["gpus"]
        return (
            rank,
            frozenset(sorted(cores)[: slots * shape.slot_size]),
            frozenset(sorted(gpus)[: slots * shape.gpu_per_slot]),
        )

    def place_by_hooks(
        self, request: ResourceRequest, index: RankIndex, eligible: int
    ) -> tuple[Selection, int] | None:
        """Run the hooks for a request on an index and a mask of eligible ranks. Return
        ``(selection, nslots)``, or None if it does not fit now. Raises ValueError if a hook chose
        units that are not free, not up or unknown."""
        shape = request.shape
        if shape.within is not None:
            eligible = self.in_groups(index, shape, eligible)
        if shape.exclusive:
            eligible &= index.idle
        need = shape.slot_size, shape.gpu_per_slot, *shape.need[2:]
        ranks = index.having(shape.need if shape.exclusive else need, eligible)
        candidates = [self._candidate(index, rank, shape) for rank in members(ranks)]
        try:
            found: Any = self._sort_candidates(candidates)
            candidates = list(found) if hasattr(found, "__iter__") else [found]
            if not all(isinstance(one, (tuple, list)) and len(one) == 4 for one in candidates):
                text = f"expected the candidates in order, got {quote(found)}"
                raise ValueError(f"_sort_candidates: {text}")
            answer = self._select_resources(candidates, request)
        except InsufficientResources:
            return None
        if answer is None:
            self._warn_of_none()
            return None
        try:
            selected, nslots = answer
        except (TypeError, ValueError):
            raise ValueError(
                f"_select_resources: expected (selected, nslots), got {quote(answer)}"
            ) from None
        selection = self._checked(index, eligible, selected or ())
        if not selection:
            return None
        placed = check_placed("_select_resources", (selection, nslots), index, shape, eligible)
        return with_amounts(index, shape, placed)

    def _warn_of_none(self) -> None:
        cls = type(self)
        if not cls._is_none_logged:
            cls._is_none_logged = True
            name = cls._select_resources.__qualname__
            self.log.warning(f"{name}() returned None, taken for ([], 0): is a return missing?")

    def _candidate(self, index: RankIndex, rank: int, shape: Shape) -> tuple[Any, ...]:
        inventory = index.inventory
        free = index.free(rank)
        free_cores = free & inventory.core_mask
        counts = inventory.counts_of(free) if inventory.amounts else ()
        if counts and self.sees_requests and shape.slot_size and not shape.exclusive:
            # It does not know of amounts: show it cores for as many slots as these allow.
            most = slots_by_amounts(counts, shape) * shape.slot_size
            if most < popcount(free_cores):
                free_cores = take(free_cores, most)
        full = inventory.full[rank]
        info: dict[str, Any] = {
            "hostname": inventory.hosts.name(rank),
            "cores": ids_of(full & inventory.core_mask),
            "gpus": ids_of(inventory.gpus(full)),
            "up": bool(self.eligible(None) >> rank & 1),
        }
        if counts:
            info["amounts"] = counts[2:]
        return (
            rank,
            MappingProxyType(info),
            ids_of(free_cores),
            ids_of(inventory.gpus(free)),
        )

    def _checked(self, index: RankIndex, eligible: int, selected: Any) -> Selection:
        """Return the selection chosen by a hook, checked."""
        inventory = index.inventory
        groups: dict[int, int] = {}
        seen = 0
        for one in selected:
            try:
                rank, cores, gpus = one
                core_mask = mask_of_ids(cores)
                units = core_mask | mask_of_ids(gpus) << inventory.shift
                bit = 1 << min(rank, inventory.ranks.bit_length())
            except (TypeError, ValueError, OverflowError):
                raise ValueError(
                    f"_select_resources: expected (rank, cores, gpus), got {quote(one)}"
                ) from None
            if not inventory.ranks & bit or seen & bit:
                raise ValueError(
                    f"_select_resources: rank {rank} is not in the pool, or chosen twice"
                )
            if not eligible & bit:
                raise ValueError(f"_select_resources: rank {rank} is not up or not eligible")
            if not units:
                raise ValueError(f"_select_resources: rank {rank}: no cores and no gpus")
            if core_mask >> inventory.shift or units & ~index.free(rank):
                raise ValueError(
                    f"_select_resources: rank {rank}: cores {quote(sorted(cores))} and"
                    f" gpus {quote(sorted(gpus))} are not all free"
                )
            seen |= bit
            groups[units] = groups.get(units, 0) | bit
        return select(groups)
