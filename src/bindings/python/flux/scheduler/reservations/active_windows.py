# SPDX-License-Identifier: LGPL-3.0-or-later
"""What is held while a window lasts: ranks are chosen, kept by an allocation that belongs to no
job, and lent to the jobs of the group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from flux.resource.errors import InsufficientResources
from flux.resource.pool.masks import idset_text, popcount, take
from flux.scheduler.reservations.node_selector import NodeSelector
from flux.scheduler.reservations.reservation import Window
from flux.scheduler.reservations.state import ReservationState

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.rule_host import RuleHost


class ActiveWindows:
    """Holds the ranks of reservations in the pool, from when a window begins to its end.

    What is free of them is a *placeholder*'s: an allocation with a negative id. Jobs of the group
    are placed where it was. To the pool they last as long as the window, since what they give back
    before is reserved; their own ends are kept here.

    Args:
        host (RuleHost): the scheduler
        entries (dict): the reservations, by name
        selector (NodeSelector): what they ask of the pool
    """

    def __init__(
        self,
        host: RuleHost,
        entries: dict[str, ReservationState],
        selector: NodeSelector,
    ) -> None:
        self._host = host
        self._entries = entries
        self._selector = selector
        #: by id, the running jobs that started inside a window: the name of its reservation, and
        #: the end of the job itself (0 if it has none)
        self._inside: dict[int, tuple[str, float]] = {}

    # -- which ranks -------------------------------------------------------------------------------

    def pin(self, entry: ReservationState) -> None:
        """Choose the ranks of a pinned reservation that has none, or not enough that are up: those
        that are free first, then those in use; of as few groups (such as racks) as can be, else
        lowest first.

        Where there are groups, ranks whose jobs end before the window begins are as good as those
        that are free: the window would else be scattered over what happens to be free now.
        """
        if not entry.pinned or entry.active or entry.window is None:
            return
        pool = self._host.resources
        room = self._selector.ranks(entry.reservation) & pool.eligible_ranks()
        before = entry.ranks
        chosen = before & room
        wanted = self._selector.nodes(entry.reservation)
        if popcount(chosen) < wanted:
            free = self._free_by(entry.window.start) if self._groups else pool.idle_ranks
            for some in (free, pool.ranks):
                some = self._room_outside(entry, room & some & ~chosen)
                chosen |= self._choose(some, wanted - popcount(chosen), chosen)
        entry.ranks = chosen
        if before & ~chosen:
            gone, come = idset_text(before & ~chosen), idset_text(chosen & ~before)
            instead = f"rank {come} instead" if come else "no other instead"
            self._host.log.warning(f"reservation {entry.name}: rank {gone} is down: {instead}")

    def take_in(self, entry: ReservationState, planned: tuple[int, int]) -> bool:
        """Choose ranks that are still missing, and keep what is free of those chosen.

        Args:
            entry: the reservation
            planned: masks of the ranks that the plan keeps for it by now, and from a later time on;
                they are chosen first

        Returns:
            whether some were chosen, or the rest of some is kept, that the plan does not keep for it yet,
            and that may be promised to jobs
        """
        pool = self._host.resources
        usable = self._selector.ranks_up(entry.reservation)
        held = self.held_inside(entry)
        self._dismiss_placeholder(entry)
        idle = pool.idle_ranks
        # A rank that others still use does not count yet, even if it was chosen before.
        before = entry.ranks = (entry.ranks & usable & idle) | held
        wanted = self._selector.nodes(entry.reservation)
        missing = wanted - popcount(entry.ranks)
        if missing > 0:
            room = self._room_outside(entry, usable & idle & ~entry.ranks)
            by_now, later = planned
            for some in (room & by_now, room & later, room & ~by_now & ~later):
                chosen = self._choose(some, missing, entry.ranks)
                entry.ranks |= chosen
                missing -= popcount(chosen)
        # Where a rank that others use in part is not whole in the window, as far as is known, the rest
        # is kept, or new jobs would use it for ever.
        busy = 0
        if missing > 0:
            room = self._room_outside(entry, usable & ~idle & ~entry.ranks)
            busy = take(room, min(missing, popcount(room)))
        self._placeholder(entry, busy)
        self._warn(entry, wanted)
        # Of a rest more may be kept than before, which the plan does not know either.
        return bool(entry.ranks & ~before & ~planned[0]) or entry.filler is not None

    @property
    def _groups(self) -> bool:
        """Whether nodes are in groups, such as racks, of which as few as can be are taken."""
        pool = self._host.resources
        return bool(pool.can("choose_nodes") and pool.packing)

    def _choose(self, ranks: int, count: int, beside: int) -> int:
        """So many of some ranks, or as many as there are.

        Of as few groups as can be: first of those in which some of the reservation's are already
        (`beside`); those of which nothing is in use, or chosen for any window, come last. Where there
        are no groups, the lowest.
        """
        if count <= 0:
            return 0
        if not self._groups:
            return take(ranks, min(count, popcount(ranks)))
        pool = self._host.resources
        idle = pool.idle_ranks
        for entry in self._entries.values():
            idle &= ~entry.ranks
        return pool.choose_nodes(ranks, count, idle, beside)

    def _free_by(self, time: float) -> int:
        """Mask of the ranks that no running job is on by a time, as far as is known. O(jobs)."""
        pool = self._host.resources
        free: int = pool.ranks
        for jobid, end in pool.job_end_times():
            if not end or end > time:
                free &= ~pool.held_ranks(jobid)
        return free

    def _room_outside(self, entry: ReservationState, idle: int) -> int:
        """Of idle ranks, those that no other reservation has chosen for a time that overlaps."""
        assert entry.window is not None
        for other in self._entries.values():
            window = other.window
            if (
                other is not entry
                and window is not None
                and window.start < entry.window.end
                and (other.active or entry.window.start < window.end)
            ):
                idle &= ~other.ranks
        return idle

    def _warn(self, entry: ReservationState, wanted: int) -> None:
        short = self._selector.lacks(entry)
        text = f"{short} of {wanted} nodes are in use or down" if short > 0 else ""
        if text != entry.warned:
            entry.warned = text
            if text:
                self._host.log.warning(f"reservation {entry.name}: {text}")

    # -- what is free of them ----------------------------------------------------------------------

    def _placeholder(self, entry: ReservationState, busy: int = 0) -> None:
        """Allocate what is free on the chosen ranks, and on `busy` ones that are in use beyond
        the window, to nobody."""
        if entry.window is None:
            return
        jobid = self._selector.new_id()
        if self._host.resources.hold_free(jobid, entry.ranks, entry.window.end):
            entry.placeholder = jobid
        beyond = self._in_use_beyond(entry.window.end, busy)
        if beyond:
            jobid = self._selector.new_id()
            if self._host.resources.hold_free(jobid, beyond, entry.window.end):
                entry.filler = jobid

    def _in_use_beyond(self, window_end: float, busy: int) -> int:
        """Of some busy ranks, those on which a job runs that, as far as is known, does not end in the
        window.

        Of the others the plan knows from when on they are whole, and keeps them for the window from
        then on. Who ends before may use what is left of them.
        """
        beyond = 0
        pool = self._host.resources
        for jobid, end in pool.job_end_times() if busy else ():
            if not end or end >= window_end:
                beyond |= pool.held_ranks(jobid) & busy
        return beyond

    def _dismiss_placeholder(self, entry: ReservationState) -> None:
        for jobid in (entry.filler, entry.placeholder):
            if jobid is not None:
                self._host.resources.free(jobid)
        entry.filler = entry.placeholder = None

    def dismiss(self, entry: ReservationState) -> None:
        """The window is over: nothing is kept any more."""
        self._dismiss_placeholder(entry)
        self._leave(entry.name)
        entry.ranks = 0
        entry.warned = ""

    # -- jobs inside -------------------------------------------------------------------------------

    def allocate(self, entry: ReservationState, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Place a job of the group on the reserved ranks; None if it does not fit there now."""
        pool = self._host.resources
        window = entry.window
        if window is None or entry.placeholder is None:
            return None
        ranks = pool.held_ranks(entry.placeholder)
        busy = 0 if entry.filler is None else pool.held_ranks(entry.filler)
        self._dismiss_placeholder(entry)
        try:
            alloc = pool.alloc_on(job.jobid, job.resource_request, ranks)
        except InsufficientResources:
            return None
        finally:
            self._placeholder(entry, busy)
        end = pool.job_end(job.jobid)
        if entry.reservation.at_end == "cancel":
            end = min(end or window.end, window.end)
        self._note_inside(job.jobid, entry.name, end, window)
        plan.note_started(job.jobid)
        return alloc

    def held_inside(self, entry: ReservationState) -> int:
        """Mask of the ranks that the group's jobs hold which were started inside."""
        held = 0
        for jobid, (name, _) in self._inside.items():
            if name == entry.name:
                try:
                    held |= self._host.resources.held_ranks(jobid)
                except KeyError:
                    pass
        return held

    def found_inside(self, jobid: int, name: str) -> None:
        """A job of a group runs, which the scheduler before this one has started: inside the window,
        unless it is on ranks that the reservation could not have."""
        entry = self._entries[name]
        window = entry.window
        held = self._host.resources.held_ranks(jobid)
        if window is not None and not held & ~self._selector.ranks(entry.reservation):
            end = self._host.resources.job_end(jobid)
            self._note_inside(jobid, name, end, window)

    def _note_inside(self, jobid: int, name: str, end: float, window: Window) -> None:
        """A job runs inside a window until `end`; to the pool no shorter than the window lasts."""
        self._inside[jobid] = (name, end)
        pool_end = max(end, window.end) if end else 0.0
        self._host.resources.update_expiration(jobid, pool_end)

    def running(self) -> Iterator[tuple[int, float]]:
        """The jobs that run, with their ends; placeholders are none."""
        for jobid, end in self._host.resources.job_end_times():
            if jobid >= 0:
                yield jobid, self.own_end_of(jobid, end)

    def own_end_of(self, jobid: int, end: float) -> float:
        """When a running job ends itself, of which the pool says `end`."""
        return self._inside[jobid][1] if jobid in self._inside else end

    def extended(self, jobid: int, expiration: float) -> bool:
        """A running job has a new end; whether it is one inside a window, whose pool is told here.

        Of a job that its administrator gives time beyond the window, the end is that new one.
        """
        name, _ = self._inside.get(jobid, ("", 0.0))
        entry = self._entries.get(name)
        if entry is None or entry.window is None:
            return False
        self._note_inside(jobid, name, expiration, entry.window)
        return True

    def end_of(self, jobid: int) -> float | None:
        """When a job that was started inside is ended by the end of the window; None: it is not."""
        entry = self._entries.get(self._inside.get(jobid, ("", 0.0))[0])
        if entry is None or entry.window is None or entry.reservation.at_end != "cancel":
            return None
        return entry.window.end

    def outlives_window(self, jobid: int) -> bool:
        """Whether a job was started inside a window, and runs on when it ends."""
        name, end = self._inside.get(jobid, ("", 0.0))
        entry = self._entries.get(name)
        return entry is not None and entry.window is not None and not 0 < end <= entry.window.end

    def ended(self, jobid: int) -> None:
        """A job holds nothing any more."""
        self._inside.pop(jobid, None)

    def _leave(self, name: str) -> None:
        """The window is over: jobs that run inside are ordinary ones from now on."""
        for jobid, (own, end) in list(self._inside.items()):
            if own == name:
                del self._inside[jobid]
                self._host.resources.update_expiration(jobid, end)
