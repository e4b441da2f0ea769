# SPDX-License-Identifier: LGPL-3.0-or-later
"""The jobs that an entry of a table applies to, and how they are grouped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flux.scheduler.site_policy.counts import user_id, user_name

if TYPE_CHECKING:
    from flux.scheduler.attributes import SystemAttributes
    from flux.scheduler.site_policy.fields import Fields
    from flux.scheduler.site_policy.queue_names import QueueNames

#: Keys by which jobs are counted together.
PER = ("user", "bank", "queue", "user+queue", "bank+queue", "instance")


class Scope(NamedTuple):
    """The jobs that a limit or a budget applies to.

    Attributes:
        per (str): one of `PER`
        queues, users, banks (tuple): only their jobs; empty: all jobs
        exempt_users, exempt_banks (tuple): jobs not included
        in_reservations (bool): whether jobs that name a reservation are included
    """

    per: str
    queues: tuple[str, ...]
    users: tuple[int, ...]
    banks: tuple[str, ...]
    exempt_users: tuple[int, ...]
    exempt_banks: tuple[str, ...]
    in_reservations: bool

    def key_of(
        self, userid: int, attributes: SystemAttributes, names: QueueNames
    ) -> tuple[Any, ...] | None:
        """Return the key under which a job is counted: user id, bank or queue, or two of them; None
        if the job is not included."""
        queue, bank = attributes.queue, attributes.bank or ""
        if self.queues and not names.any_covers(self.queues, queue):
            return None
        if self.users and userid not in self.users or userid in self.exempt_users:
            return None
        if self.banks and bank not in self.banks or bank in self.exempt_banks:
            return None
        if not self.in_reservations and attributes.reservation is not None:
            return None
        # A virtual queue counts as its parent.
        place = names.parent(queue) or queue or ""
        whose = {"user": userid, "bank": bank, "queue": place}
        return tuple(whose[part] for part in self.per.split("+") if part in whose)

    @property
    def needs_jobspec(self) -> bool:
        """Whether `key_of` needs more than the user."""
        return bool(
            self.per not in ("user", "instance")
            or not self.in_reservations
            or self.queues
            or self.banks
            or self.exempt_banks
        )

    def user_of(self, key: tuple[Any, ...]) -> int | None:
        """Return the user of a key's jobs, or None for several."""
        parts = self.per.split("+")
        return key[parts.index("user")] if "user" in parts else None

    def whose(self, key: tuple[Any, ...]) -> str:
        """Return the owner of a key's jobs, in words; empty: all jobs."""
        found = []
        for what, value in zip(self.per.split("+"), key):
            if what == "user":
                found.append(user_name(value))
            elif what == "bank":
                found.append(f"bank {value}" if value else "no bank")
            elif value:
                found.append(f"queue {value}")
            else:
                found.append("no queue")
        return ", ".join(found)


def read_scope(table: Fields) -> Scope:
    """Take the keys of a scope from a table.

    Raises:
        ValueError: the entry is invalid; the text begins with the key
    """
    exempt = table.table("exempt")
    scope = Scope(
        table.choice("per", PER),
        queues=table.names("queues"),
        users=_user_ids(table, "users", "users"),
        banks=table.names("banks"),
        exempt_users=() if exempt is None else _user_ids(exempt, "users", "exempt.users"),
        exempt_banks=() if exempt is None else exempt.names("banks"),
        in_reservations=table.flag("in-reservations", True),
    )
    if exempt is not None:
        exempt.end()
    return scope


def _user_ids(table: Fields, key: str, path: str) -> tuple[int, ...]:
    ids = []
    for name in table.names(key):
        try:
            ids.append(user_id(name))
        except ValueError as exc:
            raise ValueError(f"{path}: {exc}") from None
    return tuple(ids)
