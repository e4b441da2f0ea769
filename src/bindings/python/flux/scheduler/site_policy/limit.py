# SPDX-License-Identifier: LGPL-3.0-or-later
"""One limit as its table has it, and what counts against it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from flux.resource.pool.masks import popcount
from flux.resource.pool.rank_counts import RankCounts
from flux.scheduler.site_policy.counts import DIMENSIONS, Amount, Holding, user_id
from flux.scheduler.site_policy.fields import Fields

if TYPE_CHECKING:
    from flux.scheduler.requests import PendingJob

#: Whose jobs are counted together.
PER = ("user", "bank", "queue", "user+queue", "bank+queue", "instance")


class Limit(NamedTuple):
    """One limit, as its table has it.

    Attributes:
        name (str): its name
        per (str): one of `PER`
        queues, users, banks (tuple): whose jobs it is for; empty: all
        exempt_users, exempt_banks (tuple): whose jobs it is not for
        most (tuple): most of each of `DIMENSIONS`; None: no limit
        soft (bool): jobs over it go behind all others, but may run
        deny (bool): a job that alone is more than the limit is denied
        strict (bool): later jobs of a key leave alone what the first of them waits for
        in_reservations (bool): jobs that name a reservation count
    """

    name: str
    per: str
    queues: tuple[str, ...]
    users: tuple[int, ...]
    banks: tuple[str, ...]
    exempt_users: tuple[int, ...]
    exempt_banks: tuple[str, ...]
    most: tuple[int | None, ...]
    soft: bool
    deny: bool
    strict: bool
    in_reservations: bool


def read_limit(name: str, value: Any) -> Limit:
    """Read the table of one limit.

    Raises:
        ValueError: what is wrong, beginning with its key
    """
    table = Fields(value)
    per = table.choice("per", PER)
    most = table.table("max")
    if most is None:
        raise ValueError("max is missing: expected a table such as {nodes=64}")
    exempt = table.table("exempt")
    limit = Limit(
        name,
        per,
        queues=table.names("queues"),
        users=_user_ids(table, "users", "users"),
        banks=table.names("banks"),
        exempt_users=() if exempt is None else _user_ids(exempt, "users", "exempt.users"),
        exempt_banks=() if exempt is None else exempt.names("banks"),
        most=tuple(most.whole(dimension) for dimension in DIMENSIONS),
        soft=table.flag("soft"),
        deny=table.flag("deny"),
        strict=table.choice("order", ("pass", "strict"), "pass") == "strict",
        in_reservations=table.flag("in-reservations", True),
    )
    for left in (most, exempt, table):
        if left is not None:
            left.end()
    if all(one is None for one in limit.most):
        raise ValueError(f"max: expected one of {', '.join(DIMENSIONS)}")
    if limit.soft and (limit.deny or limit.strict):
        raise ValueError("soft: a job over a soft limit may run: no deny, no order='strict'")
    return limit


def _user_ids(table: Fields, key: str, path: str) -> tuple[int, ...]:
    ids = []
    for name in table.names(key):
        try:
            ids.append(user_id(name))
        except ValueError as exc:
            raise ValueError(f"{path}: {exc}") from None
    return tuple(ids)


class Use:
    """What the jobs of one key hold, against one limit.

    Attributes:
        limit (Limit): which
        key (tuple): whose jobs: user id, bank or queue, or two of them
        ranks (RankCounts): the ranks they are on
        cores, gpus, jobs (int): what they hold
        waiting (dict): what jobs that wait for this take at least, by the keys of their deferrals
        pending (Amount): what all pending jobs of the key take at least, together
        head (PendingJob or None): where order is strict, the first job that waits for this
        let_out (set): of `waiting`, what was let out since the count has changed last in place of
            jobs that did not fit the pool
        certain (dict): by id, pending jobs that were promised a start, of which it was said that this
            limit will let them start then
        demoted (set): ids of pending jobs that are over a soft limit
    """

    __slots__ = (
        "certain",
        "cores",
        "demoted",
        "gpus",
        "head",
        "jobs",
        "key",
        "let_out",
        "limit",
        "pending",
        "ranks",
        "waiting",
    )

    def __init__(self, limit: Limit, key: tuple[Any, ...]) -> None:
        self.limit = limit
        self.key = key
        self.ranks = RankCounts()
        self.cores = self.gpus = self.jobs = 0
        self.waiting: dict[Hashable, Amount] = {}
        self.pending = Amount()
        self.head: PendingJob | None = None
        self.let_out: set[Hashable] = set()
        self.demoted: set[int] = set()
        self.certain: dict[int, PendingJob] = {}

    @property
    def used(self) -> Amount:
        """What is in use."""
        return Amount(len(self.ranks), self.cores, self.gpus, self.jobs)

    @property
    def idle(self) -> bool:
        """Whether no job is counted here, running or pending."""
        return not (self.jobs or self.pending.jobs or self.waiting)

    def change(self, before: Holding, after: Holding, jobs: int = 0) -> None:
        """A job of the key holds something else than before."""
        if before.ranks & ~after.ranks:
            self.ranks.remove(before.ranks & ~after.ranks)
        if after.ranks & ~before.ranks:
            self.ranks.add(after.ranks & ~before.ranks)
        self.cores += after.cores - before.cores
        self.gpus += after.gpus - before.gpus
        self.jobs += jobs

    def expect(self, amount: Amount, sign: int) -> None:
        """A job that takes so much at least waits, or with `sign` -1 waits no more."""
        self.pending = Amount(*[a + sign * b for a, b in zip(self.pending, amount)])

    def over(self, more: Amount, kept: Amount | None = None) -> int | None:
        """Which of `DIMENSIONS` would be over the limit with so much more, while `kept` is left
        alone; None: none."""
        most = self.limit.most
        used = (0, self.cores, self.gpus, self.jobs)
        for at, limit in enumerate(most):
            if limit is None:
                continue
            total = (used[at] if at else popcount(self.ranks.ranks)) + more[at]
            if kept is not None:
                total += kept[at]
            if total > limit:
                return at
        return None

    def room(self, each: Amount) -> int | None:
        """How many jobs that take so much at least could be let in; None: any number."""
        used = self.used
        rooms = [
            max(0, limit - used[at]) // each[at]
            for at, limit in enumerate(self.limit.most)
            if limit is not None and each[at]
        ]
        return min(rooms, default=None)
