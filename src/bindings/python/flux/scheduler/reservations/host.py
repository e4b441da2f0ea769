# SPDX-License-Identifier: LGPL-3.0-or-later
"""What reservations may use of their scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from flux.scheduler.admission import AdmissionHost

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.admission import AdmissionControl
    from flux.scheduler.request_facts import RequestFacts
    from flux.scheduler.site_policy.queue_names import QueueNames


class ReservationHost(AdmissionHost, Protocol):
    """A scheduler as its reservations see it."""

    admission: AdmissionControl
    facts: RequestFacts
    queue_names: QueueNames

    @property
    def handle(self) -> Any: ...

    def current_plan(self) -> Plan | None: ...

    def look_again(self) -> None: ...

    def pool_can(self, operation: str) -> bool: ...
