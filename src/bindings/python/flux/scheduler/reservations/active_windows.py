"""What is held while a window lasts: ranks are chosen, kept by an allocation that belongs to no job,
and lent to the jobs of the group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

from flux.resource.pool.inventory import select, selected_ranks
from flux.resource.pool.masks import idset_text, members, popcount, take
from flux.scheduler.reservations.node_selector import NodeSelector
from flux.scheduler.reservations.reservation import Window
from flux.scheduler.reservations.state import ReservationState

if TYPE_CHECKING:
    from flux.scheduler.policy import PolicyScheduler
    from flux.scheduler.requests import PendingJob


class ActiveWindows:
    """Holds the ranks of reservations in the pool, from when a window begins to its end.

    What is free of them is a *stand-in*'s: an allocation with a negative id. Jobs of the group are
    placed where it was. To the pool they last as long as the window, since what they give back
    before is reserved; their own ends are kept here.

    Args:
        scheduler (PolicyScheduler): whose
        entries (dict): the reservations, by name
        selector (NodeSelector): what they ask of the pool
    """

    def __init__(
        self,
        scheduler: PolicyScheduler,
        entries: dict[str, ReservationState],
        selector: NodeSelector,
    ) -> None:
        self._scheduler = scheduler
        self._entries = entries
        self._selector = selector
        #: running jobs that were started inside a window: whose, and their ends (0: none)
        self._inside: dict[int, tuple[str, float]] = {}

    # -- which ranks -----------------------------------------------------------------------------------

    def pin(self, entry: ReservationState) -> None:
        """Choose the ranks of a pinned reservation that has none, or not enough that are up: those
        that are free first, then those in use, lowest first."""
        if not entry.pinned or entry.active or entry.window is None:
            return
        impl = self._scheduler.resources.impl
        room = self._selector.ranks(entry.reservation) & impl.eligible(None)
        before = entry.ranks
        chosen = before & room
        wanted = self._selector.nodes(entry.reservation)
        for some in (impl.index.idle, impl.inventory.ranks):
            free = self._room_outside(entry, room & some & ~chosen)
            chosen |= take(free, max(0, min(wanted - popcount(chosen), popcount(free))))
        entry.ranks = chosen
        if before & ~chosen:
            gone, come = idset_text(before & ~chosen), idset_text(chosen & ~before)
            instead = f"rank {come} instead" if come else "no other instead"
            self._scheduler.log.warning(f"reservation {entry.name}: rank {gone} is down: {instead}")

    def take_in(self, entry: ReservationState) -> None:
        """Choose ranks that are still missing, and keep what is free of those chosen."""
        impl = self._scheduler.resources.impl
        request = self._selector.request(entry.reservation, 1, 1.0)
        match = impl.match_mask(request)
        up = impl.eligible(request.shape.match)
        held = self.held_inside(entry)
        self._dismiss_stand_in(entry)
        # A rank that others still use is none of it yet, chosen before or not.
        entry.ranks = (entry.ranks & match & up & impl.index.idle) | held
        wanted = self._selector.nodes(entry.reservation)
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
                self._scheduler.log.warning(f"reservation {entry.name}: {text}")

    # -- what is free of them --------------------------------------------------------------------------

    def _stand_in(self, entry: ReservationState, busy: int = 0) -> None:
        """Allocate what is free on the chosen ranks, and on `busy` ones, to nobody."""
        impl = self._scheduler.resources.impl
        window = entry.window
        ranks = (entry.ranks | busy) & impl.eligible(None)
        groups: dict[int, int] = {}
        for units, mask in impl.inventory.kinds.items():
            if mask & ranks & impl.index.idle:
                groups[units] = mask & ranks & impl.index.idle
        for rank in members(ranks & ~impl.index.idle):
            free = impl.index.free(rank)
            if free:
                groups[free] = groups.get(free, 0) | 1 << rank
        if window is None or not groups:
            return
        entry.stand_in = self._selector.new_id()
        left = max(1.0, window.end - self._scheduler.now())
        request = self._selector.request(entry.reservation, 1, left)
        impl.grant(entry.stand_in, request, select(groups), 0)
        impl.update_expiration(entry.stand_in, window.end)

    def _dismiss_stand_in(self, entry: ReservationState) -> None:
        if entry.stand_in is not None:
            self._scheduler.resources.impl.free(entry.stand_in)
            entry.stand_in = None

    def dismiss(self, entry: ReservationState) -> None:
        """The window is over: nothing is kept any more."""
        self._dismiss_stand_in(entry)
        self._leave(entry.name)
        entry.ranks = 0
        entry.active = False
        entry.warned = ""

    def stand_ins(self) -> list[int]:
        """The ids of the allocations that belong to no job."""
        return [entry.stand_in for entry in self._entries.values() if entry.stand_in is not None]

    # -- jobs inside -----------------------------------------------------------------------------------

    def allocate(self, entry: ReservationState, job: PendingJob, plan: Any) -> Any:
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
        end = impl.job_end(job.jobid)
        if entry.reservation.at_end == "cancel":
            end = min(end or window.end, window.end)
        self._note_inside(job.jobid, entry.name, end, window)
        plan.note_started(job.jobid)
        return plan.wrap(got)

    def has_room(self, entry: ReservationState, request: Any) -> bool:
        """Whether a job of the group would fit inside now. Costs a copy of the pool."""
        if entry.stand_in is None:
            return False
        pool = self._scheduler.resources.impl.copy()
        ranks = selected_ranks(pool.held(entry.stand_in)) & entry.ranks
        pool.free(entry.stand_in)
        eligible = pool.eligible(request.shape.match) & ranks
        return pool.place_request(request, pool.index, eligible) is not None

    def held_inside(self, entry: ReservationState) -> int:
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

    def found_inside(self, jobid: int, name: str) -> None:
        """A job that runs was started inside a window, by the scheduler before this one."""
        window = self._entries[name].window
        if window is not None:
            end = self._scheduler.resources.impl.job_end(jobid)
            self._note_inside(jobid, name, end, window)

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
        entry = self._entries.get(name)
        if entry is None or entry.window is None:
            return False
        self._note_inside(jobid, name, expiration, entry.window)
        return True

    def end_of(self, jobid: int) -> Optional[float]:
        """When a job that was started inside is ended by the end of the window; None: it is not."""
        entry = self._entries.get(self._inside.get(jobid, ("", 0.0))[0])
        if entry is None or entry.window is None or entry.reservation.at_end != "cancel":
            return None
        return entry.window.end

    def ended(self, jobid: int) -> None:
        """A job holds nothing any more."""
        self._inside.pop(jobid, None)

    def _leave(self, name: str) -> None:
        """The window is over: jobs that run inside are ordinary ones from now on."""
        impl = self._scheduler.resources.impl
        for jobid, (own, end) in list(self._inside.items()):
            if own == name:
                del self._inside[jobid]
                impl.update_expiration(jobid, end)
