# SPDX-License-Identifier: LGPL-3.0-or-later
"""One limit, as in its table, and the jobs that count against it."""

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

#: The index of the number of jobs in `DIMENSIONS`.
JOBS = DIMENSIONS.index("jobs")


class Limit(NamedTuple):
    """One limit, as in its table.

    Attributes:
        name (str): its name
        scope (Scope): the jobs it is for
        most (tuple): maximum of each of `DIMENSIONS`; None: no limit
        soft (bool): jobs over it go behind all others, but may run
        deny (bool): a job that alone exceeds the limit is denied
        strict (bool): later jobs of a key respect the needs of the first that waits
        bounds (tuple): the values in `most` other than None, each with its index in `DIMENSIONS`
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
        """The queues that it names."""
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
    """The use of one limit by the jobs of one key.

    Attributes:
        limit (Limit): the limit
        key (tuple): user id, bank or queue of the jobs, or two of them
        userid (int or None): the jobs' user, if it is the same for all
        ranks (RankCounts): the jobs' ranks
        used (list): the jobs' holdings, of each of `DIMENSIONS`
        waiting (dict): by key of a deferral, (uses, least amount), the uses in which the jobs that
            wait for this one count
        pending (list): the least that all pending jobs of the key take together
        head (PendingJob or None): if the limit is strict, the first job that waits for it
        certain (dict): by id, pending jobs with a promise that this limit was said to keep
        demoted (set): ids of pending jobs that are over a soft limit
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
        """Whose jobs are counted, in words; empty: all."""
        return self.limit.scope.whose(self.key)

    @property
    def idle(self) -> bool:
        """Whether no running or pending job is counted here."""
        return not (self.used[JOBS] or self.pending[JOBS] or self.waiting)

    def change(self, before: Holding, after: Holding, jobs: int = 0) -> None:
        """The holding of a job of the key has changed."""
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
        """A job that takes at least `amount` is pending or, with `sign` -1, no longer pending."""
        nodes, cores, gpus, jobs = amount
        pending = self.pending
        pending[0] += sign * nodes
        pending[1] += sign * cores
        pending[2] += sign * gpus
        pending[JOBS] += sign * jobs

    def over(self, more: Sequence[int], kept: Amount | None = None) -> int | None:
        """The index in `DIMENSIONS` that would be over the limit with `more` of each, besides
        `kept`; None: none."""
        used = self.used
        for at, most in self.limit.bounds:
            if used[at] + more[at] + (kept[at] if kept is not None else 0) > most:
                return at
        return None

    def room(self, each: Amount) -> int | None:
        """The number of jobs taking at least `each` that could be let in; None: any number."""
        used = self.used
        rooms = [
            max(0, limit - used[at]) // each[at] for at, limit in self.limit.bounds if each[at]
        ]
        return min(rooms, default=None)
