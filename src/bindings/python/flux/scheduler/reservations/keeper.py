"""Keeping reserved resources from jobs that may not have them.

How a reservation is kept
=========================

*Before a window begins*, it is to the plan what a promise with a fixed start is: so many whole nodes,
from then on, for so long. Whoever starts or promises a job through that plan keeps it, and ranks
are chosen as late as for any promise. Where it cannot be had whole, because jobs run into the
window, each part is entered from when it can be had. Windows that repeat are entered `AHEAD`
ahead; the last of them without an end, so that a job that outlives it is kept off as well.

*When it begins*, the ranks are chosen, and what is free of them is given to a *stand-in*: an
allocation in the pool that belongs to no job (its id is negative). Nothing else has to know: the
pool gives reserved resources to nobody, the plan knows when they come back. What is still in use
then is taken in as it becomes free; until then the reservation is short of it.

*A job of the group* that starts inside is placed where the stand-in was, and the stand-in keeps the
rest; when the job ends, its resources are the stand-in's again. The stand-in gets a new id each
time, since a plan knows an allocation by its id and its end.

*When it ends*, the stand-in is gone, and blocked jobs are looked at.

A job of the group that does not fit inside may use what lies idle outside, like any job, but nothing
is kept for it there and nobody waits behind it: between tries it is set *aside*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.inventory import select, selected_ranks
from flux.resource.pool.masks import idset_text, members, popcount, take
from flux.scheduler.reservations.reservation import Asker, Reservation, Window
from flux.scheduler.reservations.times import iso_time

if TYPE_CHECKING:
    from flux.scheduler.policy import PolicyScheduler
    from flux.scheduler.requests import PendingJob

#: Windows of one reservation that the plan knows at a time.
AHEAD = 64

#: Parts in which a window that cannot be had whole is entered.
PARTS = 16

#: Later than a time by so little that nothing lies between, seconds.
TICK = 1e-3

#: Longest time between two looks at the clock, seconds: it may be set.
LOOK = 60.0


class Entry:
    """A reservation, and how far it is.

    Attributes:
        reservation (Reservation): what was asked for
        configured (bool): it comes from the configuration, and cannot be given up by a request
        window (Window or None): the one that lasts, else the next; None: all are over
        active (bool): `window` has begun
        ranks (int): mask of the ranks chosen; 0 before it began, unless they are pinned
        stand_in (int or None): the id of the allocation that keeps what is free of them
        keys (list): its promises in the plan
        parts (list): of its next window, pairs of a start and a number of nodes that these keep
        whole (bool): these keep all that it wants; if not, they are made anew at each release
    """

    __slots__ = (
        "active",
        "configured",
        "keys",
        "parts",
        "ranks",
        "reservation",
        "stand_in",
        "warned",
        "whole",
        "window",
    )

    def __init__(self, reservation: Reservation, configured: bool) -> None:
        self.reservation = reservation
        self.configured = configured
        self.window: Optional[Window] = None
        self.active = False
        self.ranks = 0
        self.stand_in: Optional[int] = None
        self.keys: list[int] = []
        self.parts: list[tuple[float, int]] = []
        self.whole = True
        self.warned = ""

    @property
    def name(self) -> str:
        return self.reservation.name

    @property
    def pinned(self) -> bool:
        """Whether its ranks are chosen before it begins. All that have a name or a property are
        known anyway."""
        return self.reservation.pin and self.reservation.nodes is not None


class Keeper:
    """The reservations of a scheduler, and what keeps them.

    Args:
        scheduler (PolicyScheduler): whose
    """

    def __init__(self, scheduler: PolicyScheduler) -> None:
        self._scheduler = scheduler
        self.entries: dict[str, Entry] = {}
        #: jobs of a group that wait for its window, by id
        self.aside: dict[int, PendingJob] = {}
        #: running jobs that were started inside a window: whose, and their ends (0: none), since to
        #: the pool they end with the window: what they give back before is reserved
        self._inside: dict[int, tuple[str, float]] = {}
        self._next_id = -1
        self._plan: Any = None
        #: whether the jobs that run are in the pool, so that what is free may be taken
        self._open = False

    def __bool__(self) -> bool:
        return bool(self.entries)

    def _new_id(self) -> int:
        self._next_id -= 1
        return self._next_id

    # -- the table -------------------------------------------------------------------------------------

    def add(self, reservation: Reservation, configured: bool = False) -> Entry:
        """Keep a reservation from now on.

        Raises:
            ValueError: there is one of that name, its windows are all over, or it names nothing
                that the instance has
        """
        self.check(reservation)
        entry = self.entries[reservation.name] = Entry(reservation, configured)
        entry.window = reservation.window_at(self._scheduler.now())
        self._pin(entry)
        if not self._enter(entry):
            self._scheduler.replan()
        if self._open and not self.tick():
            self._wake()  # what was promised or estimated may be so no longer
        return entry

    def check(self, reservation: Reservation) -> None:
        """Whether a reservation can be added.

        Raises:
            ValueError: why not
        """
        name = reservation.name
        if name in self.entries:
            raise ValueError(f"reservation {name} exists already: unreserve it first")
        if reservation.window_at(self._scheduler.now()) is None:
            end = reservation.recurrence.start + reservation.duration
            raise ValueError(f"reservation {name}: it would be over since {iso_time(end)}")
        expiration = self._scheduler.resources.expiration
        if expiration and reservation.recurrence.start >= expiration:
            raise ValueError(f"reservation {name}: the instance ends before it begins")
        nodes = self.nodes_of(reservation)
        if not nodes:
            raise ValueError(f"reservation {name}: no node of this instance is meant by it")
        try:
            request = self._request(reservation, nodes, reservation.duration)
            self._scheduler.resources.check_feasibility(request)
        except InfeasibleRequest as exc:
            raise ValueError(f"reservation {name}: {exc}") from None

    def remove(self, name: str) -> Entry:
        """Give a reservation up; jobs that run inside go on as ordinary jobs.

        Raises:
            ValueError: there is none of that name
        """
        entry = self.entries.pop(name, None)
        if entry is None:
            raise ValueError(f"there is no reservation {name}")
        self._withdraw(entry)
        self._dismiss(entry)
        # A promise from the end of its window on would come due when nothing else happens.
        self._scheduler.replan()
        self._wake()
        return entry

    def nodes_of(self, reservation: Reservation) -> int:
        """How many nodes a reservation is for, as the inventory is now."""
        if reservation.nodes is not None:
            return reservation.nodes
        request = self._request(reservation, 1, reservation.duration)
        return popcount(self._scheduler.resources.impl.match_mask(request))

    def _request(self, reservation: Reservation, nodes: int, duration: float) -> Any:
        return self._scheduler.parse_request(reservation.jobspec(nodes, duration))

    # -- who -------------------------------------------------------------------------------------------

    def standing(self, job: PendingJob) -> tuple[Optional[Entry], Optional[str]]:
        """The reservation to whose group a job belongs, and why it cannot run for now.

        Returns:
            the `Entry` or None, and a reason or None

        Raises:
            InfeasibleRequest: the job names a reservation that is not for it
        """
        name = job.reservation
        if name is None:
            return None, None
        entry = self.entries.get(name)
        if entry is None:
            return None, f"reservation {name} does not exist"
        userid = job.request.userid
        asker = Asker(
            -1 if userid is None else userid, _attribute(job, "queue"), _attribute(job, "bank")
        )
        if not entry.reservation.admits(asker):
            raise InfeasibleRequest(
                f"reservation {name} is not for this job's user, queue and bank"
            )
        if entry.window is None:
            return entry, f"reservation {name} is over"
        return entry, None

    def why(self, job: PendingJob) -> Optional[str]:
        """What a job waits for on account of a reservation, in one sentence; None: of none."""
        return self.blame(job)[0]

    def blame(self, job: PendingJob) -> tuple[Optional[str], Optional[Entry]]:
        """As `why`, and the reservation if there is one of that name."""
        try:
            entry, reason = self.standing(job)
        except InfeasibleRequest as exc:
            return str(exc), None
        if reason is not None:
            return reason, entry
        now = self._scheduler.now()
        if entry is not None and entry.window is not None and not entry.active:
            begins = self._text(entry, entry.window.start)
            return f"reservation {entry.name} begins at {begins}", entry
        if entry is not None:
            wanted = self.nodes_of(entry.reservation)
            free = popcount(entry.ranks & ~self._held_inside(entry))
            return f"reservation {entry.name}: {free} of {wanted} nodes are free", entry
        return self._in_the_way(job, now)

    def _text(self, entry: Entry, when: float) -> str:
        return str(iso_time(when, entry.reservation.recurrence.zone))

    def _in_the_way(self, job: PendingJob, now: float) -> tuple[Optional[str], Optional[Entry]]:
        """The first reservation without which a job could start now."""
        if not self.entries:
            return None, None
        request = job.resource_request
        scheduler = self._scheduler
        facts = scheduler.resources.explain(request)
        wanted = scheduler.ranks_of(job)
        active = reserved = 0
        for entry in self.entries.values():
            if entry.active:
                active |= entry.ranks
        if facts["available"] < facts["needed"]:
            if not wanted & active or facts["unit"] != "nodes":
                return None, None
            reserved = popcount(wanted & active)
            if facts["available"] + reserved < facts["needed"]:
                return None, None
            names = [e.name for e in self.entries.values() if e.active and e.ranks & wanted]
            first = self.entries[names[0]]
            assert first.window is not None
            text = (
                f"{reserved} of {facts['matching']} nodes are reserved for {', '.join(names)} "
                f"until {self._text(first, first.window.end)}"
            )
            return text, first
        length = request.duration if request.duration > 0 else math.inf
        ahead = [
            (entry.window.start, entry)
            for entry in self.entries.values()
            if entry.window is not None
            and not entry.active
            and entry.window.start < now + length
            and self._mask(entry) & wanted
        ]
        if not ahead:
            return None, None
        start, entry = min(ahead, key=lambda one: one[0])
        # How long it may be is not said here: the sentence would change every second.
        if request.duration <= 0:
            text = (
                f"no time limit: it could run into reservation {entry.name}, which begins at "
                f"{self._text(entry, start)}"
            )
        else:
            text = (
                f"time limit too long before reservation {entry.name}, which begins at "
                f"{self._text(entry, start)}"
            )
        return text, entry

    def _mask(self, entry: Entry) -> int:
        """Ranks that a reservation could want."""
        request = self._request(entry.reservation, 1, 1.0)
        mask: int = self._scheduler.resources.impl.match_mask(request)
        return mask

    # -- starting --------------------------------------------------------------------------------------

    def allocate(self, job: PendingJob, plan: Any) -> Any:
        """Allocate to a job now, without taking what is promised or reserved.

        Args:
            job (PendingJob): the job
            plan (Plan): the one that jobs are started through

        Raises:
            InsufficientResources, InfeasibleRequest, ValueError: as ``ResourcePool.alloc()``
        """
        entry, reason = self.standing(job)
        if reason is not None:
            raise InsufficientResources(reason)
        if entry is not None and entry.active:
            got = self._allocate_inside(entry, job, plan)
            if got is not None:
                return got
        return plan.alloc(job.jobid, job.resource_request)

    def _allocate_inside(self, entry: Entry, job: PendingJob, plan: Any) -> Any:
        """Place a job of the group on the reserved ranks; None if it does not fit there now."""
        scheduler = self._scheduler
        impl = scheduler.resources.impl
        request = job.resource_request
        window = entry.window
        if window is None or entry.stand_in is None:
            return None
        ranks = selected_ranks(impl.held(entry.stand_in))
        busy = ranks & ~entry.ranks
        ranks &= entry.ranks
        self._dismiss_stand_in(entry)
        try:
            eligible = impl.eligible(request.shape.match) & ranks
            placed = impl.place_request(request, impl.index, eligible)
            if placed is None:
                return None
            got = impl.grant(job.jobid, request, *placed)
        finally:
            self._stand_in(entry, busy)
        end = impl.end_of(job.jobid)
        if entry.reservation.at_end == "cancel":
            end = min(end or window.end, window.end)
        self._note_inside(job.jobid, entry.name, end, window)
        plan.note_started(job.jobid)
        return plan.wrap(got)

    def _note_inside(self, jobid: int, name: str, end: float, window: Window) -> None:
        """A job runs inside a window until `end`; to the pool no shorter than the window lasts."""
        self._inside[jobid] = (name, end)
        pool_end = max(end, window.end) if end else 0.0
        self._scheduler.resources.impl.update_expiration(jobid, pool_end)

    def running(self) -> Iterator[tuple[int, float]]:
        """The jobs that run, with their ends; stand-ins are none."""
        inside = self._inside
        for jobid, end in self._scheduler.resources.job_end_times():
            if jobid >= 0:
                yield jobid, inside[jobid][1] if jobid in inside else end

    def extended(self, jobid: int, expiration: float) -> bool:
        """A running job has a new end; whether it is one inside a window, whose pool is told here.

        Of a job that its administrator gives time beyond the window, the end is that new one.
        """
        name, _ = self._inside.get(jobid, ("", 0.0))
        entry = self.entries.get(name)
        if entry is None or entry.window is None:
            return False
        self._note_inside(jobid, name, expiration, entry.window)
        return True

    def _leave(self, name: str) -> None:
        """The window is over: jobs that run inside are ordinary ones from now on."""
        impl = self._scheduler.resources.impl
        for jobid, (own, end) in list(self._inside.items()):
            if own == name:
                del self._inside[jobid]
                impl.update_expiration(jobid, end)

    def end_of(self, jobid: int) -> Optional[float]:
        """When a job that was started inside is ended by the end of the window; None: it is not."""
        entry = self.entries.get(self._inside.get(jobid, ("", 0.0))[0])
        if entry is None or entry.window is None or entry.reservation.at_end != "cancel":
            return None
        return entry.window.end

    # -- time ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """The jobs that run are in the pool: from now on windows may begin."""
        self._open = True
        self.tick()

    def lasting(self) -> set[str]:
        """Names of the reservations of which a window lasts, begun or not."""
        now = self._scheduler.now()
        return {
            name
            for name, entry in self.entries.items()
            if entry.window is not None and entry.window.start <= now
        }

    def tick(self) -> bool:
        """Do what the time asks for: begin windows and end them, take in what became free.

        Returns:
            whether resources became free for others, or jobs aside are worth a look
        """
        if not self._open:
            return False
        now = self._scheduler.now()
        changed = False
        for entry in self.entries.values():
            while entry.window is not None and entry.window.end <= now:
                changed = True
                self._end_window(entry, now)
            if entry.window is not None and not entry.active and entry.window.start <= now:
                changed = True
                entry.active = True
                self._withdraw(entry)
                self._take_in(entry)
                self._enter(entry)
            elif entry.active:
                self._take_in(entry)
        if changed:
            self._wake()
        return changed

    def next_change(self) -> Optional[float]:
        """When `tick` has something to do next, seconds since the epoch; None: never."""
        times = [
            entry.window.end if entry.active else entry.window.start
            for entry in self.entries.values()
            if entry.window is not None
        ]
        return min(times, default=None)

    def _end_window(self, entry: Entry, now: float) -> None:
        log = self._scheduler.log
        if entry.active:
            log.info(f"reservation {entry.name}: the window is over")
        self._dismiss(entry)
        entry.window = entry.reservation.window_at(now)
        self._withdraw(entry)
        self._pin(entry)
        if entry.window is None:
            log.info(f"reservation {entry.name} is over")
        elif not self._enter(entry):
            self._scheduler.replan()

    # -- the plan, before a window -----------------------------------------------------------------------

    def attach(self, plan: Any) -> None:
        """Enter all reservations into a plan that has no promises yet; it is kept up to date."""
        self._plan = plan
        for entry in self.entries.values():
            entry.keys = []
            self._enter(entry)

    @property
    def plan(self) -> Any:
        """The plan in which the reservations are entered; a new one for a policy that has none."""
        if self._plan is None:
            self.attach(self._scheduler.resources.plan())
        return self._plan

    def forget_plan(self) -> None:
        """The plan is void: ranks were lost, or another one is made."""
        self._plan = None
        for entry in self.entries.values():
            entry.keys = []

    def _enter(self, entry: Entry) -> bool:
        """Enter the windows to come into the plan; whether all of them could be had whole."""
        if self._plan is None or entry.window is None:
            return True
        entry.parts = []
        entry.whole = self._enter_missing(self._plan, entry, entry.keys, entry.parts)
        window = self._next_window(entry)
        for left in range(AHEAD, 0, -1):
            if window is None:
                break
            following = entry.reservation.window_after(window)
            endless = left == 1 and following is not None
            end = math.inf if endless else window.end
            whole, keys, parts = self._enter_window(self._plan, entry, window, end)
            entry.whole &= whole
            entry.keys += keys
            if left == AHEAD:
                entry.parts += parts
            window = following
        return entry.whole

    def _enter_missing(
        self, plan: Any, entry: Entry, keys: list[int], parts: list[tuple[float, int]]
    ) -> bool:
        """Enter what the window that lasts is short of, so that nobody else has it when it comes
        free; whether there is no such."""
        if not entry.active or entry.window is None:
            return True
        missing = self.nodes_of(entry.reservation) - popcount(entry.ranks)
        if missing <= 0:
            return True
        window = entry.window
        self._enter_nodes(
            plan, entry.reservation, window.start, window.end, 0, missing, keys, parts
        )
        return False

    def _next_window(self, entry: Entry) -> Optional[Window]:
        """The first of an entry's windows that has not begun."""
        if entry.active and entry.window is not None:
            return entry.reservation.window_after(entry.window)
        return entry.window

    def _enter_window(
        self, plan: Any, entry: Entry, window: Window, end: float
    ) -> tuple[bool, list[int], list[tuple[float, int]]]:
        """Enter one window into a plan, in as few parts as can be.

        Returns:
            whether all of it could be had at once; the keys of its parts; their starts and numbers
        """
        pinned = entry.ranks if entry.pinned and not entry.active else 0
        wanted = self.nodes_of(entry.reservation)
        whole = True
        keys: list[int] = []
        parts: list[tuple[float, int]] = []
        for ranks, number in ((pinned, popcount(pinned)), (0, wanted - popcount(pinned))):
            if number > 0:
                whole &= self._enter_nodes(
                    plan, entry.reservation, window.start, end, ranks, number, keys, parts
                )
        return whole, keys, parts

    def _enter_nodes(
        self,
        plan: Any,
        reservation: Reservation,
        start: float,
        end: float,
        ranks: int,
        left: int,
        keys: list[int],
        parts: list[tuple[float, int]],
    ) -> bool:
        """Enter so many nodes of a window, of certain ranks or (0) of any; whether all at once."""
        start = max(start, self._scheduler.now())
        whole = True
        for _ in range(PARTS):
            if not left or start >= end:
                break
            count = self._most(plan, reservation, left, start, end, ranks)
            whole &= count == left
            if count:
                keys.append(self._new_id())
                plan.reserve(keys[-1], self._part(reservation, count, start, end, ranks), start)
                parts.append((start, count))
                left -= count
            if left:
                found = plan.earliest(
                    self._part(reservation, 1, 0.0, 1.0, ranks),
                    after=start + TICK,
                )
                if found is None or found <= start:
                    break
                start = found
        return whole

    def _kept_as_well_as_can_be(self) -> bool:
        """Whether what the plan lacks of the reservations is lacking beside no promise, too."""
        trial = self._scheduler.resources.plan()
        for entry in self.entries.values():
            parts: list[tuple[float, int]] = []
            self._enter_missing(trial, entry, [], parts)
            window = self._next_window(entry)
            if window is not None:
                parts += self._enter_window(trial, entry, window, window.end)[2]
            if not entry.whole and parts != entry.parts:
                return False
        return True

    def _part(
        self, reservation: Reservation, count: int, start: float, end: float, pinned: int
    ) -> Any:
        """A request for some of a window's nodes, from a part of it on."""
        ranks = idset_text(pinned) if pinned else None
        duration = 0 if end == math.inf else end - start
        return self._scheduler.parse_request(reservation.jobspec(count, duration, ranks))

    def _most(
        self,
        plan: Any,
        reservation: Reservation,
        most: int,
        start: float,
        end: float,
        pinned: int,
    ) -> int:
        """The largest number of nodes that a plan has for all of a span."""

        def fits(count: int) -> bool:
            try:
                part = self._part(reservation, count, start, end, pinned)
                found = plan.earliest(part, after=start)
            except (InfeasibleRequest, InsufficientResources):
                return False
            return found is not None and found <= start

        if fits(most):
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            if fits(middle):
                low = middle
            else:
                high = middle
        return low

    def _withdraw(self, entry: Entry, again: bool = False) -> None:
        """Take an entry's promises out of the plan, and enter those that it now needs if `again`."""
        if self._plan is not None:
            for key in entry.keys:
                self._plan.cancel(key)
        entry.keys = []
        if again:
            self._enter(entry)

    # -- the pool, in a window ---------------------------------------------------------------------------

    def _pin(self, entry: Entry) -> None:
        """Choose the ranks of a pinned reservation that has none, or not enough that are up: those
        that are free first, then those in use, lowest first."""
        if not entry.pinned or entry.active or entry.window is None:
            return
        impl = self._scheduler.resources.impl
        room = self._mask(entry) & impl.eligible(None)
        before = entry.ranks
        chosen = before & room
        wanted = self.nodes_of(entry.reservation)
        for some in (impl.index.idle, impl.inventory.ranks):
            free = self._room_outside(entry, room & some & ~chosen)
            chosen |= take(free, max(0, min(wanted - popcount(chosen), popcount(free))))
        entry.ranks = chosen
        if before & ~chosen:
            gone, come = idset_text(before & ~chosen), idset_text(chosen & ~before)
            instead = f"rank {come} instead" if come else "no other instead"
            self._scheduler.log.warning(f"reservation {entry.name}: rank {gone} is down: {instead}")

    def repin(self) -> None:
        """Ranks went down or left, or came: pinned reservations have others instead."""
        for entry in self.entries.values():
            self._pin(entry)

    def _take_in(self, entry: Entry) -> None:
        """Choose ranks that are still missing, and keep what is free of those chosen."""
        impl = self._scheduler.resources.impl
        request = self._request(entry.reservation, 1, 1.0)
        match = impl.match_mask(request)
        up = impl.eligible(request.shape.match)
        held = self._held_inside(entry)
        self._dismiss_stand_in(entry)
        # A rank that others still use is none of it yet, chosen before or not.
        entry.ranks = (entry.ranks & match & up & impl.index.idle) | held
        wanted = self.nodes_of(entry.reservation)
        missing = wanted - popcount(entry.ranks)
        if missing > 0:
            room = self._room_outside(entry, match & up & impl.index.idle & ~entry.ranks)
            entry.ranks |= take(room, min(missing, popcount(room)))
            missing = wanted - popcount(entry.ranks)
        # Of ranks that others still use in part, the rest: or they would be used for ever.
        busy = 0
        if missing > 0:
            room = self._room_outside(entry, match & up & ~impl.index.idle & ~entry.ranks)
            busy = take(room, min(missing, popcount(room)))
        self._stand_in(entry, busy)
        self._warn(entry, wanted)

    def _held_inside(self, entry: Entry) -> int:
        """Mask of the ranks that the group's jobs hold which were started inside."""
        impl = self._scheduler.resources.impl
        held = 0
        for jobid, (name, _) in self._inside.items():
            if name == entry.name:
                try:
                    held |= selected_ranks(impl.held(jobid))
                except KeyError:
                    pass
        return held

    def _room_outside(self, entry: Entry, idle: int) -> int:
        """Of idle ranks, those that no other reservation has chosen for a time that overlaps."""
        assert entry.window is not None
        for other in self.entries.values():
            window = other.window
            if (
                other is not entry
                and window is not None
                and window.start < entry.window.end
                and (other.active or entry.window.start < window.end)
            ):
                idle &= ~other.ranks
        return idle

    def _warn(self, entry: Entry, wanted: int) -> None:
        short = wanted - popcount(entry.ranks)
        text = f"{short} of {wanted} nodes are in use or down" if short > 0 else ""
        if text != entry.warned:
            entry.warned = text
            if text:
                self._scheduler.log.warning(f"reservation {entry.name}: {text}")

    def _stand_in(self, entry: Entry, busy: int = 0) -> None:
        """Allocate what is free on the chosen ranks, and on `busy` ones, to nobody."""
        impl = self._scheduler.resources.impl
        window = entry.window
        groups: dict[int, int] = {}
        for rank in members((entry.ranks | busy) & impl.eligible(None)):
            free = impl.index.free(rank)
            if free:
                groups[free] = groups.get(free, 0) | 1 << rank
        if window is None or not groups:
            return
        entry.stand_in = self._new_id()
        left = max(1.0, window.end - self._scheduler.now())
        request = self._request(entry.reservation, 1, left)
        impl.grant(entry.stand_in, request, select(groups), 0)
        impl.update_expiration(entry.stand_in, window.end)

    def _dismiss_stand_in(self, entry: Entry) -> None:
        if entry.stand_in is not None:
            self._scheduler.resources.impl.free(entry.stand_in)
            entry.stand_in = None

    def _dismiss(self, entry: Entry) -> None:
        """The window is over: nothing is kept any more."""
        self._dismiss_stand_in(entry)
        self._leave(entry.name)
        entry.ranks = 0
        entry.active = False
        entry.warned = ""

    def stand_ins(self) -> list[int]:
        """The ids of the allocations that belong to no job."""
        return [entry.stand_in for entry in self.entries.values() if entry.stand_in is not None]

    def refill(self) -> None:
        """Something was released or came up: what is reserved of it is taken before anyone looks."""
        for entry in self.entries.values():
            if entry.active:
                self._take_in(entry)
        short = [entry for entry in self.entries.values() if not entry.whole]
        for entry in short:
            self._withdraw(entry, again=True)
        if (
            any(not entry.whole for entry in short)
            and self._plan is not None
            and any(key >= 0 for key in self._plan.reservations())
            and not self._kept_as_well_as_can_be()
        ):
            self._scheduler.replan()

    def found_inside(self, jobid: int, name: str) -> None:
        """A job that runs was started inside a window, by the scheduler before this one."""
        window = self.entries[name].window
        if window is not None:
            end = self._scheduler.resources.impl.end_of(jobid)
            self._note_inside(jobid, name, end, window)

    def ended(self, jobid: int) -> None:
        """A job holds nothing any more."""
        self._inside.pop(jobid, None)

    # -- jobs aside ------------------------------------------------------------------------------------

    def set_aside(self, job: PendingJob) -> None:
        """A job of the group waits for its window, and nobody behind it."""
        self.aside[job.jobid] = job

    def is_aside(self, job: PendingJob) -> bool:
        """Whether a job waits for its window, and so for no other job."""
        return job.jobid in self.aside

    def estimates(self, most: int) -> Iterator[tuple[PendingJob, Optional[float]]]:
        """When the first of the jobs that are aside are expected to start; None: nobody knows.

        That is said of a window to come, in which they are planned in order, beside what runs then.
        """
        plans: dict[str, Any] = {}
        for job in sorted(self.aside.values())[:most]:
            if not job.request.finalized:
                yield job, self._estimate(job, plans)

    def _estimate(self, job: PendingJob, plans: dict[str, Any]) -> Optional[float]:
        try:
            entry, reason = self.standing(job)
        except InfeasibleRequest:
            return None
        if entry is None or reason is not None or entry.active or entry.window is None:
            return None
        plan = plans.get(entry.name)
        if plan is None:
            plan = plans[entry.name] = self.plan.copy()
            for key in entry.keys:
                plan.cancel(key)
        request = job.resource_request
        try:
            when: Optional[float] = plan.earliest(request, after=entry.window.start)
            if when is None or when >= entry.window.end:
                return None
            plan.reserve(job.jobid, request, when)
        except (InfeasibleRequest, InsufficientResources):
            return None
        return when

    def take_back(self, most: Optional[int] = None) -> Iterator[PendingJob]:
        """Jobs to be put back into the queue, in order: all, or so many."""
        jobs = sorted(self.aside.values())[:most]
        for job in jobs:
            del self.aside[job.jobid]
            if not job.request.finalized:
                yield job

    def _wake(self) -> None:
        self._scheduler.reservations_changed()

    # -- what is shown ---------------------------------------------------------------------------------

    def describe(self, entry: Entry) -> dict[str, Any]:
        """An entry as the answer of ``sched.reservations`` has it."""
        impl = self._scheduler.resources.impl
        reservation = entry.reservation
        wanted = self.nodes_of(reservation)
        window = entry.window
        state = "over" if window is None else "active" if entry.active else "planned"
        held = popcount(entry.ranks)
        if entry.active and held < wanted:
            state = "degraded"
        elif not entry.active and window is not None:
            request = self._request(reservation, 1, 1.0)
            able = impl.match_mask(request) & impl.eligible(request.shape.match)
            if popcount(able) < wanted:
                state = "degraded"
        shown = window or Window(
            0, reservation.recurrence.start, reservation.recurrence.start + reservation.duration
        )
        return {
            "name": entry.name,
            "state": state,
            "start": shown.start,
            "end": shown.end,
            "nodes": wanted,
            "held": held if entry.active else 0,
            "short": max(0, wanted - held) if entry.active else 0,
            "ranks": idset_text(entry.ranks) if entry.ranks else None,
            "every": reservation.recurrence.every,
            "zone": reservation.recurrence.zone,
            "at_end": reservation.at_end,
            "group": _group(reservation),
            "configured": entry.configured,
            "note": entry.warned,
        }

    def blamed(self, job: PendingJob) -> Optional[dict[str, Any]]:
        """The reservation that a job waits for or has to keep off: its name, start and end."""
        _, entry = self.blame(job)
        if entry is None or entry.window is None:
            return None
        return {"name": entry.name, "start": entry.window.start, "end": entry.window.end}

    def preview(self, reservation: Reservation) -> dict[str, Any]:
        """As `describe`, of a reservation that is not made."""
        entry = Entry(reservation, configured=False)
        entry.window = reservation.window_at(self._scheduler.now())
        return self.describe(entry)

    def spans(self, until: float) -> Iterator[dict[str, Any]]:
        """The windows up to a time, as ``sched.plan`` shows them."""
        for entry in list(self.entries.values()):
            window: Optional[Window] = entry.window
            for _ in range(AHEAD):
                if window is None or window.start >= until:
                    break
                now = entry.active and window is entry.window
                ranks = entry.ranks if now or entry.pinned else 0
                yield {
                    "name": entry.name,
                    "start": window.start,
                    "end": window.end,
                    "nodes": self.nodes_of(entry.reservation),
                    "ranks": idset_text(ranks) if ranks else None,
                }
                window = entry.reservation.window_after(window)

    def conflicts(self, reservation: Reservation) -> list[dict[str, Any]]:
        """Running jobs that would be in the way when the next window begins.

        Of a number of nodes, the jobs that end last are named, as many as have to be.
        """
        impl = self._scheduler.resources.impl
        window = reservation.window_at(self._scheduler.now())
        if window is None:
            return []
        request = self._request(reservation, 1, 1.0)
        room = impl.match_mask(request) & impl.eligible(request.shape.match)
        busy: list[tuple[float, int, int]] = []
        taken = 0
        for jobid, end in self.running():
            ranks = selected_ranks(impl.held(jobid)) & room
            if ranks and (not end or end > window.start):
                busy.append((end or math.inf, jobid, ranks))
                taken |= ranks
        if reservation.nodes is not None:
            lacking = reservation.nodes - popcount(room & ~taken)
            if lacking <= 0:
                return []
        return [
            {"id": jobid, "nodes": popcount(ranks), "end": None if end == math.inf else end}
            for end, jobid, ranks in sorted(busy)
        ]


def _group(reservation: Reservation) -> str:
    """Who it is for, in words; empty: nobody."""
    parts = []
    for noun, names in (
        ("users", [str(user) for user in reservation.users]),
        ("queues", list(reservation.queues)),
        ("banks", list(reservation.banks)),
    ):
        if names:
            parts.append(f"{noun} {','.join(names)}")
    return "; ".join(parts)


def _attribute(job: PendingJob, key: str) -> Any:
    """A system attribute of a job's jobspec."""
    try:
        return job.resource_request.jobspec["attributes"]["system"].get(key)
    except (AttributeError, KeyError, TypeError):
        return None
