# SPDX-License-Identifier: LGPL-3.0-or-later
"""Disclosure of others' jobs: fields of answers, and reasons why jobs wait.

`FIELDS` is the one table of it. A guest is shown a field only if the table names it. The instance
owner and users with the role admin are shown everything.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Protocol


class Fields(NamedTuple):
    """The fields of an object in an answer, by the readers that may learn them: names with spaces between.

    Attributes:
        everyone: any user, also in private mode (``access.private-mode``)
        guests: any user, unless in private mode
        owner: the instance owner and admins; of an object of a user, that user too
    """

    everyone: str
    guests: str = ""
    owner: str = ""

    def shown(self, private: bool) -> frozenset[str]:
        """The fields that a guest is shown."""
        return frozenset(self.everyone.split() + ([] if private else self.guests.split()))


#: By the path of an object: the topic of the question, and the fields that lead to it. ``sched.plan``
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
        "now made verdict start ranks reason t_latest t_likely t_p90", "unplanned"
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
    """The reader of an answer or a reason.

    Attributes:
        private (bool): whether in private mode
    """

    @property
    def private(self) -> bool: ...

    def may_see(self, userid: int | None) -> bool: ...


class JobOwner(NamedTuple):
    """Reads the fields that Flux shows with a job in private mode.

    Attributes:
        userid (int or None): whose the job is
    """

    userid: int | None

    @property
    def private(self) -> bool:
        return True

    def may_see(self, userid: int | None) -> bool:
        return userid is not None and userid == self.userid


class Owned(Dict[str, Any]):
    """An object in an answer about the jobs of one user, who is shown all of it.

    Args:
        fields (dict): the object
        userid (int or None): that user; None: the jobs are of several
    """

    def __init__(self, fields: dict[str, Any], userid: int | None) -> None:
        super().__init__(fields)
        self.userid = userid


def shown_to(reader: Reader, path: str, value: Any) -> Any:
    """The part of a value in an answer that a guest is shown.

    Args:
        reader (Reader): the guest
        path (str): where it is, as in `FIELDS`
        value: as JSON has it; of objects whose path is not in the table all is shown
    """
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
    """Whether guests are told nothing of others in an instance of this configuration
    (``access.private-mode``)."""
    access = config.get("access") if isinstance(config, dict) else None
    return isinstance(access, dict) and bool(access.get("private-mode", False))


class Reason(str):
    """Why a job waits, where that tells of others' jobs; as a string, all of it.

    Args:
        text (str): for the instance owner, admins and the user `userid`
        private (str): for others in private mode
        guest (str): for others if not; default: all of it
        userid (int): whose jobs it tells of, if they are one user's
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
        """The text for a reader."""
        if reader.may_see(self._userid):
            return str(self)
        if reader.private:
            return self._private
        return str(self) if self._guest is None else self._guest

    def not_for_guests(self) -> Reason:
        """The same, of which a guest learns no more than in private mode."""
        return Reason(self, self._private, self._private, self._userid)


def behind(name: str, userid: int | None, prefix: str = "", suffix: str = "") -> Reason:
    """``behind ƒ2``: a job waits for another by the order of the queue.

    Args:
        name (str): the other's name
        userid (int or None): whose that is
        prefix, suffix (str): of the sentence
    """
    return Reason(
        f"{prefix}behind {name}{suffix}",
        f"{prefix}waits for its turn",
        f"{prefix}behind another job{suffix}",
        userid,
    )


def read_by(reader: Reader, reason: str | None) -> str | None:
    """A reason, as a reader may have it."""
    return reason.read_by(reader) if isinstance(reason, Reason) else reason
