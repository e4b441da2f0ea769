# SPDX-License-Identifier: LGPL-3.0-or-later
"""Amounts on nodes other than cores and GPUs, such as memory: ``[amounts]``.

The pool counts them (`flux.resource.pool.amounts`), so placement, plans, promises and reasons treat
them like cores. This rule configures the pool at the scheduler's start. A job's amounts are in its
R, from which the next start of the scheduler reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flux.resource.pool.amounts import check_name, read_entry
from flux.scheduler.pools import missing_hosts
from flux.scheduler.query.answering import Caller
from flux.scheduler.site_policy.table_rule import TableRule


class AmountRule(TableRule):
    """Configures the pool to count the amounts in the table."""

    name = "amounts"
    table = "amounts"
    lists = "amounts"

    #: The entries that the pool counts, which were in the table at the start.
    _counted: dict[str, Any] = {}

    def parse(self, key: str, value: Any) -> Any:
        pool = self.host.resources
        if not self.host.planning.pool_can("count_amounts"):
            raise ValueError(f"{key}: {pool.name} counts no amounts")
        check_name(key)
        read_entry(key, value, getattr(pool, "scheduling", None), pool.inventory)
        return value

    def doubts(self, entries: dict[str, Any]) -> Iterator[tuple[str, str]]:
        pool = self.host.resources
        for key, value in entries.items():
            kind, _ = read_entry(key, value, getattr(pool, "scheduling", None), pool.inventory)
            if not kind.most:
                yield key, "no node has any"
            elif kind.default > kind.most:
                yield key, f"default={value['default']!r}: no node has that much"
            table = value if isinstance(value, dict) else {}
            for hosts in table.get("hosts", ()):
                if missing := missing_hosts(pool, hosts):
                    yield key, f"hosts={hosts!r}: {missing} not in this instance"
            for name in table.get("properties", ()):
                if name not in pool.inventory.properties:
                    yield key, f"properties={name!r}: no node has it"

    def configure(self, entries: dict[str, Any]) -> None:
        if not self.loaded:
            self.host.resources.count_amounts(entries)
            self._counted = entries
        elif entries != self._counted:
            self.errors.log.warning(
                "configuration: [amounts] has changed: it takes effect when the scheduler is reloaded"
            )

    def stats(self) -> dict[str, Any]:
        return {"amounts": self.host.resources.amounts_in_use()}

    def report(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        yield from self.host.resources.amounts_in_use()
