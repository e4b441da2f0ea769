# SPDX-License-Identifier: LGPL-3.0-or-later
"""The system attributes of a jobspec (RFC 14)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def printable(text: object) -> str:
    """Replace the control characters of a foreign text, so that it cannot affect a terminal or the
    lines of a log."""
    found = str(text)
    return found if found.isprintable() else _CONTROL.sub("?", found)


def table_in(value: Any, *keys: str) -> dict[str, Any]:
    """Return the table at some keys, each in the table of the one before, of a configuration or a
    jobspec; {} if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


class SystemAttributes:
    """The system attributes of a jobspec, the object ``attributes.system``, read only here. They
    come from a user: a missing or invalid value is None, and names are `printable`."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def from_jobspec(cls, jobspec: Any) -> SystemAttributes:
        """Return the attributes of a jobspec; empty if it has none or is invalid.  O(1)."""
        return cls(table_in(jobspec, "attributes", "system"))

    @classmethod
    def of_job(cls, job: Any) -> SystemAttributes:
        """Return those of a pending job. Parses its jobspec again, which a long queue keeps as
        text."""
        try:
            jobspec = job.resource_request.jobspec
        except (AttributeError, KeyError, TypeError):
            jobspec = None
        return cls.from_jobspec(jobspec)

    def names_any(self, names: tuple[str, ...]) -> bool:
        """Whether any of these attributes is present.  O(names)."""
        values = self._values
        if values.keys().isdisjoint(names):  # as nearly always
            return False
        return any(values.get(name) is not None for name in names)

    def only(self, names: Iterable[str]) -> SystemAttributes:
        """Return a copy with only some names, which may be kept."""
        return SystemAttributes(
            {name: self._values[name] for name in names if name in self._values}
        )

    def get(self, name: str, default: Any = None) -> Any:
        """Return the attribute of this name, of any type, or `default`."""
        value = self._values.get(name)
        return default if value is None else value

    def _text(self, name: str) -> str | None:
        value = self._values.get(name)
        return printable(value) if isinstance(value, str) else None

    @property
    def queue(self) -> str | None:
        """The queue that the job was submitted to."""
        return self._text("queue")

    @property
    def bank(self) -> str | None:
        """The bank charged for the job."""
        return self._text("bank")

    @property
    def reservation(self) -> str | None:
        """The reservation in which the job is to run."""
        name = self._values.get("reservation")
        return None if name is None else printable(name)

    @property
    def constraints(self) -> dict[str, Any] | None:
        """The constraint on the job's nodes (RFC 31)."""
        value = self._values.get("constraints")
        return value if isinstance(value, dict) else None
