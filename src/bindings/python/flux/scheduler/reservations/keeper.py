"""Keeping reserved resources from jobs that may not have them.

How a reservation is kept
=========================

*Before a window begins*, it is to the plan what a promise with a fixed start is: so many whole nodes,
from then on, for so long. Whoever starts or promises a job through that plan keeps it, and ranks
are chosen as late as for any promise. Where it cannot be had whole, because jobs run into the
window, each part is entered from when it can be had. Windows that repeat are entered
`ahead.AHEAD` ahead; the last of them without an end, so that a job that outlives it is kept off as well.

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

Who does what
=============

`Keeper` has the table of reservations, and does what the time asks for. `ahead.Ahead` enters windows
to come into the plan; `holding.Holding` chooses ranks and holds them in the pool while a window lasts;
`members.Members` knows the jobs of a group. `entry.Entry` is one reservation and how far it is, and
`entry.Demands` says in the pool's terms what it asks for. `reasons.Reasons` and `board.Board` only
look: they say what a job waits for, and show reservations. `office.Office` takes requests, and stores
what was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.scheduler.host import name_of
from flux.scheduler.reservations.ahead import Ahead
from flux.scheduler.reservations.board import Board
from flux.scheduler.reservations.entry import Demands, Entry
from flux.scheduler.reservations.holding import Holding
from flux.scheduler.reservations.members import Members
from flux.scheduler.reservations.reasons import Reasons
from flux.scheduler.reservations.reservation import Asker, Reservation
from flux.scheduler.reservations.times import iso_time

if TYPE_CHECKING:
    from flux.scheduler.policy import PolicyScheduler
    from flux.scheduler.requests import PendingJob


class Keeper:
    """The reservations of a scheduler, and what keeps them.

    Args:
        scheduler (PolicyScheduler): whose

    Attributes:
        entries (dict): the reservations, by name
        ahead (Ahead): their windows to come, in the plan
        holding (Holding): what is held of them, in the pool
        members (Members): the jobs of their groups
        reasons (Reasons): which job waits for which
        board (Board): how they are shown
    """

    def __init__(self, scheduler: PolicyScheduler) -> None:
        self._scheduler = scheduler
        self.entries: dict[str, Entry] = {}
        demands = self._demands = Demands(scheduler)
        self.ahead = Ahead(scheduler, self.entries, demands)
        self.holding = Holding(scheduler, self.entries, demands)
        self.members = Members(self.entries, self.ahead)
        self.reasons = Reasons(scheduler, self.entries, demands, self.members, self.holding)
        self.board = Board(scheduler, self.entries, demands, self.holding)
        #: whether the jobs that run are in the pool, so that what is free may be taken
        self._open = False

    def __bool__(self) -> bool:
        return bool(self.entries)

    # -- the table -------------------------------------------------------------------------------------

    def add(
        self, reservation: Reservation, configured: bool = False, anyway: bool = False
    ) -> Entry:
        """Keep a reservation from now on.

        Args:
            reservation (Reservation): what is asked for
            configured: whether it comes from the configuration
            anyway: even if the instance has not all of it now: it is kept as far as can be

        Raises:
            ValueError: there is one of that name, its windows are all over, or the instance does not
                have what it asks for
        """
        self._check_name_and_time(reservation)
        if not anyway:
            self._check_nodes(reservation)
        entry = self.entries[reservation.name] = Entry(reservation, configured)
        entry.window = reservation.window_at(self._scheduler.now())
        self.holding.pin(entry)
        if not self.ahead.enter(entry):
            self._scheduler.replan()
        if self._open and not self.tick():
            self._wake()  # what was promised or estimated may be so no longer
        return entry

    def check(self, reservation: Reservation) -> None:
        """Whether a reservation can be added.

        Raises:
            ValueError: why not
        """
        self._check_name_and_time(reservation)
        self._check_nodes(reservation)

    def _check_name_and_time(self, reservation: Reservation) -> None:
        name = reservation.name
        if name in self.entries:
            raise ValueError(f"reservation {name} exists already: unreserve it first")
        if reservation.window_at(self._scheduler.now()) is None:
            end = reservation.recurrence.start + reservation.duration
            raise ValueError(f"reservation {name}: it would be over since {iso_time(end)}")
        expiration = self._scheduler.resources.expiration
        if expiration and reservation.recurrence.start >= expiration:
            raise ValueError(f"reservation {name}: the instance ends before it begins")

    def _check_nodes(self, reservation: Reservation) -> None:
        missing = self._demands.missing_hosts(reservation)
        if missing:
            raise ValueError(
                f"reservation {reservation.name}: hosts={missing}: not of this instance"
            )
        nodes = self._demands.nodes(reservation)
        if not nodes:
            raise ValueError(
                f"reservation {reservation.name}: no node of this instance is meant by it"
            )
        try:
            request = self._demands.request(reservation, nodes, reservation.duration)
            self._scheduler.resources.check_feasibility(request)
        except InfeasibleRequest as exc:
            raise ValueError(f"reservation {reservation.name}: {exc}") from None

    def remove(self, name: str) -> Entry:
        """Give a reservation up; jobs that run inside go on as ordinary jobs.

        Raises:
            ValueError: there is none of that name
        """
        entry = self.entries.pop(name, None)
        if entry is None:
            raise ValueError(f"there is no reservation {name}")
        self.ahead.withdraw(entry)
        self.holding.dismiss(entry)
        # A promise from the end of its window on would come due when nothing else happens.
        self._scheduler.replan()
        self._wake()
        return entry

    # -- starting --------------------------------------------------------------------------------------

    def allocate(self, job: PendingJob, plan: Any) -> Any:
        """Allocate to a job now, without taking what is promised or reserved.

        Args:
            job (PendingJob): the job
            plan (Plan): the one that jobs are started through

        Raises:
            InsufficientResources, InfeasibleRequest, ValueError: as ``ResourcePool.alloc()``
        """
        entry, reason = self.members.standing(job)
        if reason is not None:
            raise InsufficientResources(reason)
        if entry is not None and entry.active:
            got = self.holding.allocate(entry, job, plan)
            if got is not None:
                return got
        return plan.alloc(job.jobid, job.resource_request)

    def newcomer(
        self, name: str, request: Any, asker: Asker
    ) -> tuple[Optional[float], Optional[str]]:
        """When a job that is not submitted would start in the reservation that it names.

        Returns:
            seconds since the epoch, or None; and if that is not known, why

        Raises:
            InfeasibleRequest: the reservation is not for it
        """
        entry, reason = self.members.find(name, asker)
        if entry is None or reason is not None:
            return None, reason
        if entry.active:
            if self.holding.has_room(entry, request):
                return self._scheduler.now(), None
            return None, f"reservation {name}: not enough of its nodes are free"
        when = self.members.start_in_window(entry, request)
        return when, None if when is not None else f"reservation {name}: no room in its window"

    def extended(self, jobid: int, expiration: float) -> None:
        """A running job has a new end.

        That it reaches into a window is let, and the log says so.
        """
        if not self.holding.extended(jobid, expiration):
            self._scheduler.resources.update_expiration(jobid, expiration)
        for entry in self.entries.values():
            if any(job["id"] == jobid for job in self.board.in_the_way(entry)):
                assert entry.window is not None
                zone = entry.reservation.recurrence.zone
                end = f"ends at {iso_time(expiration, zone)}" if expiration else "has no end"
                self._scheduler.log.warning(
                    f"{name_of(jobid)} {end} now and is in the way of reservation {entry.name}, "
                    f"which begins at {iso_time(entry.window.start, zone)}: that is let"
                )

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
                self.ahead.withdraw(entry)
                self.holding.take_in(entry)
                self.ahead.enter(entry)
            elif entry.active:
                self.holding.take_in(entry)
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
        self.holding.dismiss(entry)
        entry.window = entry.reservation.window_at(now)
        self.ahead.withdraw(entry)
        self.holding.pin(entry)
        if entry.window is None:
            log.info(f"reservation {entry.name} is over")
        elif not self.ahead.enter(entry):
            self._scheduler.replan()

    # -- resources ------------------------------------------------------------------------------------

    def ranks_changed(self, lost: bool) -> None:
        """Ranks came up or, if `lost`, went down, left or changed."""
        if lost:
            self.ahead.forget()
        for entry in self.entries.values():
            self.holding.pin(entry)
        self.refill()

    def refill(self) -> None:
        """Something was released or came up: what is reserved of it is taken before anyone looks."""
        for entry in self.entries.values():
            if entry.active:
                self.holding.take_in(entry)
        if not self.ahead.mend():
            self._scheduler.replan()

    def _wake(self) -> None:
        self._scheduler.reservations_changed()
