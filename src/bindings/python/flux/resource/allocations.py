# SPDX-License-Identifier: LGPL-3.0-or-later
"""The resources of each job, to check every R allocated by a scheduler, for a job manager that does
not trust it.

Used by the job managers of `flux.scheduler.testing`, `flux simulate` and the embedded instance. It
shares no code with pools except masks, since its purpose is to find their mistakes.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Any

from flux.resource.pool.jobid import job_text
from flux.resource.pool.masks import idset_text, members, parse_idset, quote

#: Children of an entry of R_lite, as (type, idset) pairs.
Children = tuple[tuple[str, str], ...]


@lru_cache(maxsize=4096)
def _ids(children: Children) -> dict[str, int]:
    """Return {type: mask of ids}."""
    return {kind: parse_idset(text) for kind, text in children}


@lru_cache(maxsize=4096)
def _units(children: Children) -> list[tuple[str, int]]:
    """Return (type, id) of each unit."""
    return [(kind, one) for kind, ids in _ids(children).items() for one in members(ids)]


class Allocations:
    """The allocations of an instance's resources to jobs.

    Args:
        R (dict): the instance's resources (RFC 20); None: none yet, see `define`

    Raises:
        ValueError: it is not an R

    A check and a free cost a few operations on masks per entry of R_lite; on parts of nodes, per
    unit of the entry.
    """

    def __init__(self, R: dict[str, Any] | None = None) -> None:
        #: [(mask of ranks, children)]
        self._there: list[tuple[int, Children]] = []
        #: ranks not to be allocated: at present, and from `_since` on
        self._down = self._going_down = 0
        self._since = -inf
        #: jobid -> [(mask of ranks, children, mask of those ranks that have more)]
        self._held: dict[int, list[tuple[int, Children, int]]] = {}
        #: ranks on which jobs hold units, and ranks held whole by a job
        self._busy = self._whole = 0
        #: (type, id) -> mask of the ranks where a job holds this unit, but not the whole rank
        self._used: dict[tuple[str, int], int] = {}
        #: children -> masks of the ranks that have them, and of the ranks that have no others
        self._have: dict[Children, tuple[int, int]] = {}
        if R is not None:
            self.define(R)

    def define(self, R: dict[str, Any]) -> None:
        """Set the instance's resources (RFC 20); allocations stay. Raises ValueError if it is not
        an R."""
        self._there = _entries(R)
        self._have.clear()

    def set_up(self, ranks: str, now: float | None = None, grace: float = 0.0) -> None:
        """Set the ranks (an idset) that are up at a time (seconds since the epoch; None: the
        scheduler knows of the change). For `grace` seconds it may not know of the ranks that go
        down now."""
        everything = 0
        for there, _ in self._there:
            everything |= there
        if now is None or now > self._since:
            self._down = self._going_down
        self._going_down = everything & ~parse_idset(ranks)
        self._since = -inf if now is None else now + grace
        self._down &= self._going_down

    def take(self, jobid: int, R: Any, now: float = inf) -> str | None:
        """Enter the resources of a job, and report errors in R.

        Args:
            jobid (int): the job
            R: the R sent by the scheduler
            now (float): the time, seconds since the epoch

        Returns:
            str: the error, for a log; None if R is valid

        Raises:
            ValueError: it is not an R (RFC 20); nothing is entered
        """
        entries = _entries(R)
        if not entries:
            raise ValueError("execution.R_lite: empty")
        hosts = R["execution"].get("nodelist")
        if type(hosts) is not list or not hosts or set(map(type, hosts)) != {str}:
            raise ValueError("execution.nodelist: expected an array of hostlists")
        if now > self._since:
            self._down = self._going_down
        wrong = None
        held = self._held.setdefault(jobid, [])
        for ranks, key in entries:
            known = self._have.get(key)
            if known is None:
                known = self._have[key] = self._ranks_with(key), self._ranks_of(key)
            have, whole = known
            if ranks & ~have:
                wrong = wrong or self._missing(ranks, key)
            if ranks & self._down:
                wrong = wrong or f"rank {idset_text(ranks & self._down)} is down"
            if ranks & self._busy:
                wrong = wrong or self._overlap(ranks, key)
            shared = ranks & ~whole
            held.append((ranks, key, shared))
            self._busy |= ranks
            self._whole |= ranks & whole
            if shared:
                for unit in _units(key):
                    self._used[unit] = self._used.get(unit, 0) | shared
        return wrong

    def give_back(self, jobid: int, ranks: str | None = None) -> None:
        """Remove resources freed by a job, all or on some ranks (an idset)."""
        held = self._held.pop(jobid, [])
        gone = -1 if ranks is None else parse_idset(ranks)
        left = []
        touched = 0
        for mine, key, shared in held:
            freed = mine & gone
            touched |= freed
            self._whole &= ~freed | shared
            if freed & shared:
                for unit in _units(key):
                    rest = self._used.pop(unit, 0) & ~(freed & shared)
                    if rest:
                        self._used[unit] = rest
            if freed != mine:
                left.append((mine & ~freed, key, shared & ~freed))
        if left:
            self._held[jobid] = left
        self._busy &= ~touched
        for others in self._used.values():
            self._busy |= others & touched

    # -- errors in R -------------------------------------------------------------------------------

    def _ranks_of(self, children: Children) -> int:
        """Return a mask of the ranks of which these are all units."""
        found = 0
        for ranks, there in self._there:
            found |= ranks if _ids(there) == _ids(children) else 0
        return found

    def _ranks_with(self, children: Children) -> int:
        found = 0
        for ranks, _ in self._there:
            found |= ranks
        for kind, ids in _ids(children).items():
            for one in members(ids):
                have = 0
                for ranks, there in self._there:
                    if _ids(there).get(kind, 0) >> one & 1:
                        have |= ranks
                found &= have
        return found

    def _missing(self, ranks: int, children: Children) -> str:
        unknown = ranks & ~self._ranks_with(())
        if unknown:
            return f"the instance has no rank {idset_text(unknown)}"
        what = ", ".join(f"{kind} {text}" for kind, text in children if text)
        return f"rank {idset_text(ranks & ~self._ranks_with(children))} has no {what}"

    def _overlap(self, ranks: int, children: Children) -> str | None:
        used, wanted = self._used, _ids(children)
        if not (ranks & self._whole or any(ranks & used.get(u, 0) for u in _units(children))):
            return None
        for jobid, held in self._held.items():
            for where, others, _ in held:
                for kind, ids in _ids(others).items() if where & ranks else ():
                    common = ids & wanted.get(kind, 0)
                    if common:
                        whose = f"is job {job_text(jobid)}'s"
                        return f"{kind} {idset_text(common)} of rank {idset_text(where & ranks)} {whose}"
        return None


def _entries(R: Any) -> list[tuple[int, Children]]:
    """Return (mask of ranks, children) of each entry of R_lite. Raises ValueError if it is not an
    R."""
    try:
        execution, version = R["execution"], R.get("version", 1)
    except (AttributeError, KeyError, TypeError):
        raise ValueError(f"R: expected an object with execution, got {quote(R)}") from None
    if version != 1:
        raise ValueError(f"R: version: expected 1, got {quote(version)}")
    found = []
    try:
        for entry in execution["R_lite"]:
            ranks, children = parse_idset(entry["rank"]), tuple(entry["children"].items())
            if not ranks:
                raise ValueError("execution.R_lite.rank: no rank")
            _ids(children)  # idsets
            found.append((ranks, children))
    except (AttributeError, KeyError, TypeError):
        raise ValueError(
            f"execution.R_lite: expected an array of rank and children, got {quote(execution)}"
        ) from None
    return found
