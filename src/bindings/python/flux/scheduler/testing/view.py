# SPDX-License-Identifier: LGPL-3.0-or-later
"""A fake instance, for its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from flux.scheduler.testing.reactor import Reactor


class InstanceView(Protocol):
    """The interface of a `FakeInstance` for its parts."""

    attributes: dict[str, str]
    config: dict[str, Any]
    jobs: dict[int, Any]
    log: list[tuple[int, str]]
    services: dict[str, Any]
    start_time: float

    @property
    def reactor(self) -> Reactor: ...

    @property
    def resource(self) -> Any: ...

    @property
    def job_info(self) -> Any: ...

    @property
    def kvs(self) -> Any: ...

    def now(self) -> float: ...

    def publish(self, topic: str, payload: Any) -> None: ...

    def request(self, topic: str, payload: Any) -> Any: ...

    def scheduler_stops(self) -> None: ...
