# SPDX-License-Identifier: LGPL-3.0-or-later
"""A limit, as in its table, and the jobs that count against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flux.resource.pool.masks import popcount
from flux.resource.pool.rank_counts import RankCounts
from flux.scheduler.site_policy.counts import DIMENSIONS, Amount
from flux.scheduler.site_policy.fields import Fields
from flux.scheduler.site_policy.scope import Scope, read_scope

if TYPE_CHECKING:
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.site_policy.holdings import Holding

#: Index of the number of jobs in `DIMENSIONS`.
JOBS = DIMENSIONS.index("jobs")


class Limit(NamedTuple):
    """A limit, as in its table.

    Attributes:
        name (str): name of the limit
        scope (Scope): the jobs that it applies to
        most (tuple): maximum per dimension; None: unlimited
        soft (bool): whether jobs over it go behind all others, but may run
        deny (bool): whether a job that alone exceeds it is denied
        strict (bool): whether later jobs of a key must leave the needs of the first waiting one
        bounds (tuple): (index in `DIMENSIONS`, maximum) of limited dimensions
    """

    name: str
    scope: Scope
    most: tuple[int | None, ...]
    soft: bool
    deny: bool
    strict: bool
    bounds: tuple[tuple[int, int], ...]

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues named in the table."""
        return self.scope.queues


def read_limit(name: str, value: Any) -> Limit:
    """Read the table of one limit.

    Raises:
        ValueError: the entry is invalid; the text begins with the key
    """
    table = Fields(value)
    scope = read_scope(table)
    most = table.table("max")
    if most is None:
        raise ValueError("max is missing: expected a table such as {nodes=64}")
    mosts = tuple(most.whole(dimension) for dimension in DIMENSIONS)
    limit = Limit(
        name,
        scope,
        most=mosts,
        soft=table.flag("soft"),
        deny=table.flag("deny"),
        strict=table.choice("order", ("pass", "strict"), "pass") == "strict",
        bounds=tuple((at, one) for at, one in enumerate(mosts) if one is not None),
    )
    most.end()
    table.end()
    if all(one is None for one in limit.most):
        raise ValueError(f"max: expected one of {', '.join(DIMENSIONS)}")
    if limit.soft and (limit.deny or limit.strict):
        raise ValueError("soft: a job over a soft limit may run: no deny, no order='strict'")
    return limit


class Use:
    """The use of a limit by the jobs of one key.

    Attributes:
        limit (Limit): the limit
        key (tuple): user id, bank or queue of the jobs, or two of them
        userid (int or None): the jobs' user, if it is the same for all
        ranks (RankCounts): the jobs' ranks
        used (list): the jobs' holdings, per dimension
        waiting (dict): key of a deferral -> (uses in which these waiting jobs count, their minimum
            amount)
        pending (list): minimum of all pending jobs of the key together
        head (PendingJob or None): the first job waiting for the limit, if it is strict
        certain (dict): id -> pending job with a promise that this limit is certain to allow
        demoted (set): ids of pending jobs over a soft limit
    """

    __slots__ = (
        "certain",
        "demoted",
        "head",
        "key",
        "limit",
        "pending",
        "ranks",
        "used",
        "userid",
        "waiting",
    )

    def __init__(self, limit: Limit, key: tuple[Any, ...]) -> None:
        self.limit = limit
        self.key = key
        self.userid = limit.scope.user_of(key)
        self.ranks = RankCounts()
        self.used = [0, 0, 0, 0]
        self.waiting: dict[tuple[tuple[Use, ...], Amount], tuple[Use, ...]] = {}
        self.pending = [0, 0, 0, 0]
        self.head: PendingJob | None = None
        self.demoted: set[int] = set()
        self.certain: dict[int, PendingJob] = {}

    @property
    def whose(self) -> str:
        """Owner of the counted jobs, in words; empty: all jobs."""
        return self.limit.scope.whose(self.key)

    @property
    def idle(self) -> bool:
        """Whether no running or pending job is counted here."""
        return not (self.used[JOBS] or self.pending[JOBS] or self.waiting)

    def change(self, before: Holding, after: Holding, jobs: int = 0) -> None:
        """Update the use after a job's holding has changed."""
        used, ranks = self.used, self.ranks
        gone = before.ranks & ~after.ranks
        new = after.ranks & ~before.ranks
        if gone:
            ranks.remove(gone)
        if new:
            ranks.add(new)
        used[0] = popcount(ranks.ranks)
        used[1] += after.cores - before.cores
        used[2] += after.gpus - before.gpus
        used[JOBS] += jobs

    def expect(self, amount: Amount, sign: int) -> None:
        """Add a pending job's minimum or, with `sign` -1, remove it."""
        nodes, cores, gpus, jobs = amount
        pending = self.pending
        pending[0] += sign * nodes
        pending[1] += sign * cores
        pending[2] += sign * gpus
        pending[JOBS] += sign * jobs

    def over(self, more: Sequence[int], kept: Amount | None = None) -> int | None:
        """Return the first index in `DIMENSIONS` at which `more` and `kept` would exceed the limit,
        or None."""
        used = self.used
        for at, most in self.limit.bounds:
            if used[at] + more[at] + (kept[at] if kept is not None else 0) > most:
                return at
        return None

    def room(self, each: Amount) -> int | None:
        """Return the number of jobs with minimum `each` that could be let in; None: unlimited."""
        used = self.used
        rooms = [
            max(0, limit - used[at]) // each[at] for at, limit in self.limit.bounds if each[at]
        ]
        return min(rooms, default=None)
