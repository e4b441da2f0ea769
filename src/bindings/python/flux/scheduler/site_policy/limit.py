# SPDX-License-Identifier: LGPL-3.0-or-later
"""One limit as its table has it, and what counts against it."""

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

#: Where the number of jobs is in `DIMENSIONS`.
JOBS = DIMENSIONS.index("jobs")


class Limit(NamedTuple):
    """One limit, as its table has it.

    Attributes:
        name (str): its name
        scope (Scope): whose jobs it is for
        most (tuple): most of each of `DIMENSIONS`; None: no limit
        soft (bool): jobs over it go behind all others, but may run
        deny (bool): a job that alone is more than the limit is denied
        strict (bool): later jobs of a key leave alone what the first of them waits for
        bounds (tuple): those of `most` that there are, each with its place in `DIMENSIONS`
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
        ValueError: what is wrong, beginning with its key
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
    """What the jobs of one key hold, against one limit.

    Attributes:
        limit (Limit): which
        key (tuple): whose jobs: user id, bank or queue, or two of them
        userid (int or None): the user whose jobs they are, if of one user
        ranks (RankCounts): the ranks they are on
        used (list): what they hold of each of `DIMENSIONS`
        waiting (dict): by the keys of deferrals, (where they count, what they take at least), where the jobs
            count that wait for this
        pending (list): what all pending jobs of the key take at least, together
        head (PendingJob or None): where order is strict, the first job that waits for this
        certain (dict): by id, pending jobs that were promised a start, of which it was said that this
            limit will let them start then
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
        """Whose jobs are counted, for people; empty: everybody's."""
        return self.limit.scope.whose(self.key)

    @property
    def idle(self) -> bool:
        """Whether no job is counted here, running or pending."""
        return not (self.used[JOBS] or self.pending[JOBS] or self.waiting)

    def change(self, before: Holding, after: Holding, jobs: int = 0) -> None:
        """A job of the key holds something else than before."""
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
        """A job that takes so much at least waits, or with `sign` -1 waits no more."""
        nodes, cores, gpus, jobs = amount
        pending = self.pending
        pending[0] += sign * nodes
        pending[1] += sign * cores
        pending[2] += sign * gpus
        pending[JOBS] += sign * jobs

    def over(self, more: Sequence[int], kept: Amount | None = None) -> int | None:
        """Which of `DIMENSIONS` would be over the limit with so much more of each, while `kept` is
        left alone; None: none."""
        used = self.used
        for at, most in self.limit.bounds:
            if used[at] + more[at] + (kept[at] if kept is not None else 0) > most:
                return at
        return None

    def room(self, each: Amount) -> int | None:
        """How many jobs that take so much at least could be let in; None: any number."""
        used = self.used
        rooms = [
            max(0, limit - used[at]) // each[at] for at, limit in self.limit.bounds if each[at]
        ]
        return min(rooms, default=None)
