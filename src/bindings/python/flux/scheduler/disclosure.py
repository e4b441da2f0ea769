# SPDX-License-Identifier: LGPL-3.0-or-later
"""Disclosure of other users' jobs: fields of answers, and reasons.

`FIELDS` is the single table. A guest sees a field only if the table names it. The instance owner
and users with the role admin see everything.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Protocol


class Fields(NamedTuple):
    """The fields of an object in an answer, by permitted readers: names separated by spaces."""

    everyone: str  # for any user, even in private mode (``access.private-mode``)
    guests: str = ""  # for any user, unless in private mode
    owner: str = ""  # for the instance owner and admins, and the user that the object belongs to

    def shown(self, private: bool) -> frozenset[str]:
        """Return the fields shown to a guest."""
        return frozenset(self.everyone.split() + ([] if private else self.guests.split()))


#: Path of an object (topic of the query, and fields leading to it) -> its fields. ``sched.plan``
#: and ``sched.stats`` are refused to guests.
FIELDS = {
    "sched.explain": Fields("now made jobs", "others"),
    "sched.explain.jobs": Fields(
        "id name queue priority verdict reason t_estimate t_estimate_kind t_likely t_p90 odds unit needed total"
        " matching up large_enough free available excluded rules limit reservation placement latest_start rank"
        " expected_run t_latest fits fairshare budget",
        "behind behind_more preemption borrowers",
    ),
    "sched.explain.jobs.limit": Fields("name what max needs", "whose used t_again", "job"),
    "sched.explain.jobs.budget": Fields("name what max needs t_again", "whose taken"),
    "sched.explain.jobs.fairshare": Fields("", "place of", "bank user"),
    "sched.when": Fields(
        "now made verdict start queue ranks reason t_latest t_likely t_p90 warnings", "unplanned"
    ),
    "sched.windows": Fields("now made until kinds levels"),
    "sched.windows.levels": Fields("level groups idle_groups nodes idle_nodes", "waiting"),
    "sched.reservations": Fields("now reservations"),
    "sched.reservations.reservations": Fields(
        "name state start end nodes held short ranks every zone at_end note configured group",
        owner="in_the_way",
    ),
    "sched.limits": Fields("now limits budgets licenses amounts"),
    "sched.limits.limits": Fields("limit per queues soft max", "whose used waiting"),
    "sched.limits.budgets": Fields(
        "budget per queues period end max", "whose used running waiting"
    ),
    "sched.limits.licenses": Fields("name total reserved plan age stale", "used waiting elsewhere"),
    "sched.limits.amounts": Fields("amount total largest", "in_use"),
    "sched.shares": Fields("now half_life shares"),
    "sched.shares.shares": Fields("bank user shares part", "used used_part pending running"),
    "sched.preempt": Fields("now name reason", "victims node_hours text"),
    "sched.preempt.victims": Fields("name", "class nodes node_hours"),
    "sched.preemptions": Fields("now preemptions borrowers", "takers counts"),
    "sched.preemptions.preemptions": Fields("name state deadline expected victims", "queue"),
    "sched.preemptions.preemptions.victims": Fields("name", "class nodes node_hours"),
    "sched.preemptions.borrowers": Fields("name for state end", "class"),
}

_SHOWN = {
    (path, private): fields.shown(private)
    for path, fields in FIELDS.items()
    for private in (False, True)
}


class Reader(Protocol):
    """A reader of an answer or a reason."""

    @property
    def private(self) -> bool: ...  # whether the instance is in private mode

    def may_see(self, userid: int | None) -> bool: ...


class JobOwner(NamedTuple):
    """Reader of the fields that Flux shows with a job in private mode."""

    userid: int | None  # the job's user

    @property
    def private(self) -> bool:
        return True

    def may_see(self, userid: int | None) -> bool:
        return userid is not None and userid == self.userid


class Owned(Dict[str, Any]):
    """An object in an answer about one user's jobs, or several users' (`userid` None): that user
    sees all of it."""

    def __init__(self, fields: dict[str, Any], userid: int | None) -> None:
        super().__init__(fields)
        self.userid = userid


def shown_to(reader: Reader, path: str, value: Any) -> Any:
    """Return the part of an answer's value that a guest may see. Objects whose `path`, as in
    `FIELDS`, is not in the table are shown whole."""
    if path not in FIELDS or (isinstance(value, Owned) and reader.may_see(value.userid)):
        return value
    if isinstance(value, list):
        return [shown_to(reader, path, one) for one in value]
    if not isinstance(value, dict):
        return value
    shown = _SHOWN[path, reader.private]
    return {
        key: shown_to(reader, f"{path}.{key}", one) for key, one in value.items() if key in shown
    }


def is_private(config: Any) -> bool:
    """Whether guests see nothing of other users under this configuration
    (``access.private-mode``)."""
    # No import for this: the documentation loads this file alone, also where no `flux` is complete.
    access = config.get("access") if isinstance(config, dict) else None
    return isinstance(access, dict) and bool(access.get("private-mode", False))


class Reason(str):
    """Why a job waits, if that involves others' jobs. As a string it is the full text.

    Args:
        text (str): for the instance owner, admins and user `userid`
        private (str): for others in private mode
        guest (str): for others otherwise; default: `text`
        userid (int): the user of the other jobs, if only one
    """

    def __new__(
        cls, text: str, private: str, guest: str | None = None, userid: int | None = None
    ) -> Reason:
        made = super().__new__(cls, text)
        made._private, made._guest, made._userid = private, guest, userid
        return made

    _private: str
    _guest: str | None
    _userid: int | None

    def read_by(self, reader: Reader) -> str:
        """Return the text for a reader."""
        if reader.may_see(self._userid):
            return str(self)
        if reader.private:
            return self._private
        return str(self) if self._guest is None else self._guest

    def not_for_guests(self) -> Reason:
        """Return a reason that tells guests no more than in private mode."""
        return Reason(self, self._private, self._private, self._userid)


def behind(name: str, userid: int | None, prefix: str = "", suffix: str = "") -> Reason:
    """Return the reason ``behind ƒ2``: a job waits for another by the order of the queue. `name`
    and `userid` are the other job's."""
    return Reason(
        f"{prefix}behind {name}{suffix}",
        f"{prefix}waits for its turn",
        f"{prefix}behind another job{suffix}",
        userid,
    )


def read_by(reader: Reader, reason: str | None) -> str | None:
    """Return a reason as a reader may see it."""
    return reason.read_by(reader) if isinstance(reason, Reason) else reason
