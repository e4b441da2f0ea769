# SPDX-License-Identifier: LGPL-3.0-or-later
"""A current preemption, from the decision to the start of the taker, the job for which victims end:
what its two kinds, `Eviction` and `Loan`, share.

The free part of the taker's *place* is kept for it, and more as victims free theirs, until it starts
there. Others may use the rest of the same ranks.

No code here waits for an answer: the job manager may itself wait for the scheduler, and then
neither would go on.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.scheduler.admission import JobDeferred
from flux.scheduler.disclosure import Reason, is_private
from flux.scheduler.host import NO_TIMER, name_of
from flux.scheduler.site_policy.preemption.state import (
    DECIDED,
    ENDING,
    LENT,
    NOT_THERE,
    OVER,
    SEARCH_INTERVAL_S,
    TOO_LATE,
    WARNED,
    Part,
    as_end,
)
from flux.scheduler.times import duration_text

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.site_policy.preemption.state import PreemptionState, Victim
    from flux.scheduler.trial import Place


@dataclass(eq=False)
class Preemption(Part):
    """Running jobs that end for a pending one, the taker: an `Eviction` or a `Loan`. Times are in
    seconds since the epoch."""

    shared: PreemptionState
    taker: int  # id of the job that is to start
    queue: str | None  # the taker's queue
    userid: int | None  # the taker's user
    victims: dict[int, Victim]  # id -> job that gives way
    ranks: int  # mask of the ranks on which the taker starts
    decided: float  # when the victims were chosen
    deadline: float  # when they are to be ended
    expected: float  # expected start of the taker
    state: str = DECIDED  # one of `LENT`, `DECIDED`, `WARNED`, `ENDING` and `OVER`
    job: PendingJob | None = None  # the taker; None: it has not come back after a reload
    places: list[Place] = field(default_factory=list)  # its place; empty: unknown
    placeholders: list[int] = field(default_factory=list)  # ids of allocations of free parts of it
    ended: set[int] = field(default_factory=set)  # ids of those ended by an exception of severity 0

    in_promise = False  # whether it is a `Loan`

    def __post_init__(self) -> None:
        super().__init__(self.shared)
        self._of_queue = "" if self.queue is None else f" of {self.queue}"  # in texts
        self.held = set(self.victims)  # ids of the victims that still hold resources
        self._timer = NO_TIMER  # for the next step, or for the taker's start
        #: whether the taker is being started regardless of its place in the queue
        self._out_of_turn = False

    @property
    def is_lent(self) -> bool:
        """Whether its victims run in promised time, and none was ended."""
        return self.in_promise and self.state in (LENT, WARNED)

    # -- what the kinds of preemption do each in their own way -------------------------------------

    @abstractmethod
    def enter_record(self, record: dict[str, Any]) -> None:
        """Add it to the stored record."""

    @abstractmethod
    def reason(self) -> Reason | None:
        """Return why the taker waits, in a sentence; None if it waits for its promised time."""

    @property
    @abstractmethod
    def keeps_ranks(self) -> bool:
        """Whether all that is free on its ranks is kept for the taker, not only its place."""

    @abstractmethod
    def _planned_end(self, end: float) -> float:
        """Return the planned end of a victim, from its own `end` (infinite: none); 0: none."""

    @abstractmethod
    def _kept_until(self) -> float:
        """Return the planned end of the free resources kept for the taker; 0: none."""

    @abstractmethod
    def _spare_unneeded(self) -> None:
        """Let the victims run that need not end for the taker; called before they end."""

    @abstractmethod
    def ranks_changed(self) -> None:
        """Called when ranks came up or went down."""

    @abstractmethod
    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Implement `GivingRule.allocate` for the taker."""

    @abstractmethod
    def _alloc(self, job: PendingJob, plan: Plan) -> ResourcePool:
        """Allocate resources to the taker. Raises InsufficientResources if they are not free."""

    @abstractmethod
    def try_to_start(self) -> None:
        """Start the taker if it fits now."""

    @abstractmethod
    def retry_start(self) -> None:
        """Schedule what follows if the taker did not start when its last victim had ended."""

    @abstractmethod
    def _refused(self, jobid: int, why: str) -> None:
        """The job manager has refused to end a victim, which continues."""

    # -- its beginning -----------------------------------------------------------------------------

    def enter(self) -> None:
        """Make it one of the current preemptions."""
        self._active[self.taker] = self
        self.shared.engage()
        for jobid in self.held:
            self._running.jobs[jobid].gives_way_to = self
            if self.in_promise or self.job is not None:
                end = self._planned_end(self._running.own_end(jobid))
                self._host.resources.update_expiration(jobid, end)
        self.keep()

    # -- the place of the taker --------------------------------------------------------------------

    def _hold(self) -> list[int]:
        """Allocate the free part of the taker's place to placeholders. Return their ids."""
        until, hold = self._kept_until(), self._host.placeholders.hold_free
        if self.keeps_ranks:
            return hold(self.ranks, until)
        places = (selection for selection, _ in self.places)
        return [jobid for place in places for jobid in hold(self.ranks, until, place)]

    def keep(self) -> None:
        """Keep the free part of the taker's place for it."""
        self._host.placeholders.free(self.placeholders)
        self.placeholders = self._hold()
        if not self.in_promise and self._host.now() > self.expected:
            self._host.planning.check_promises()  # the taker will end later than planned

    def keep_if_free(self) -> None:
        """Keep what others have freed on the taker's ranks, unless that breaks a promise."""
        if self.keeps_ranks and not self._breaks_a_promise():
            self.keep()

    def _breaks_a_promise(
        self, ends: dict[int, float] | None = None, without: Collection[int] = ()
    ) -> bool:
        """Whether a present promise would break if the free part of the taker's place was kept for
        it; arguments are those of `_would_break`."""
        plan = self._host.planning.current()
        if plan is None or not self._host.decision.looks_past_heads:
            return False
        return self._would_break(plan, ends or {}, without, self._hold)

    # -- running jobs ------------------------------------------------------------------------------

    def freed(self, jobid: int, final: bool) -> None:
        """Keep what a victim has freed for the taker; called before any job is examined."""
        if final:
            self.held.discard(jobid)
            if jobid in self.ended:
                self._running.was_cleaned_up(self.deadline)
        if self.state != OVER:
            self.keep()

    def extended(self, jobid: int, end: float) -> None:
        """Note the new end of a victim (infinite: none): in the pool its end remains the planned
        one."""
        self._host.resources.update_expiration(jobid, self._planned_end(end))

    def _set_timer(self, when: float, step: Callable[[], None]) -> None:
        self._timer.cancel()
        self._timer = self._host.call_at(max(when, self._host.now()), step)

    # -- warning and ending ------------------------------------------------------------------------

    def await_step(self) -> None:
        """Schedule the end of warned victims."""
        if self.job is not None and self.state == WARNED:
            self._set_timer(self.deadline, self._end_victims)

    def _recorded(self) -> None:
        """Warn the victims: the record is stored."""
        if self.state != DECIDED:
            return
        now = self._host.now()
        grace = self._classes.grace(one.cls for one in self.victims.values())
        if not self.in_promise and now - self.decided > SEARCH_INTERVAL_S and grace > 0:
            # Storing took a while, and victims must get their full grace.
            self.expected += now - self.decided
            self.decided, self.deadline = now, now + grace
            self.shared.store(self._recorded)
            return
        self.state = WARNED
        self.await_step()
        if self.deadline > now:
            for jobid in sorted(self.held):
                self._warn_victim(self.victims[jobid])

    def _end_victims(self) -> None:
        """End the victims: the grace is over."""
        if self._is_still_wanted():
            self.state = ENDING
            for jobid in sorted(self.held - self.ended):
                self._end_victim(self.victims[jobid])

    def _is_still_wanted(self) -> bool:
        """Whether some victims must still end for the taker; others are spared. If none must, the
        preemption is over."""
        job = self.job
        assert job is not None, "its preemption ends with it"
        objection = TOO_LATE if self.expected >= job.latest else self._objection(job)
        if objection is not None:
            self.give_up(objection, "rule")
        else:
            self._spare_unneeded()
        return self.state != OVER

    def let_run(self, jobids: Collection[int], why: str) -> None:
        """Let some victims run to their own ends: they need not end for the taker, or have
        ended."""
        for jobid in jobids:
            self._restore_end(jobid)
            if self.state in (WARNED, ENDING) and jobid in self.held:
                self._spare_victim(jobid, why)
            self.held.discard(jobid)
            del self.victims[jobid]
        if self.in_promise and not self.victims:
            self.end(why)
        elif jobids:
            self.shared.store()

    def _restore_end(self, jobid: int) -> None:
        """Restore the planned end of a victim that no longer gives way."""
        one = self._running.jobs.get(jobid)
        if one is not None:
            one.gives_way_to = None
            self._host.resources.update_expiration(jobid, as_end(self._running.own_end(jobid)))

    # -- its end -----------------------------------------------------------------------------------

    def taker_starts(self) -> None:
        """End the preemption: the taker starts."""
        self._counts.takers += bool(self.ended)
        self.end(f"{self._taker_name()} has started without that")
        if not self.in_promise:
            # If it starts later than planned, it also ends later.
            self._host.planning.doubt()

    def taker_is_gone(self) -> None:
        """End the preemption: the taker will not start or, if it is still pending, a change of the
        configuration has changed its request."""
        if self._host.pending(self.taker) is None:
            self.give_up(f"{self._taker_name()} is gone", "gone")
        else:
            self.give_up(f"the request of {self._taker_name()} has changed", "configuration")

    def give_up(self, why: str, cause: str) -> None:
        """End the preemption: the taker does not start on the kept resources. `cause`: ``gone``,
        ``node``, ``refused``, ``rule`` or ``configuration`` (:doc:`../guide/preemption`)."""
        for jobid in self.ended:
            counts = self._counts.of(self.victims[jobid])
            counts["useless"] += 1
            counts["useless_by"][cause] += 1
        self._host.log.info(f"preemption for {name_of(self.taker)} is given up: {why}")
        self.end(why)

    def end(self, why: str) -> None:
        """End it, and notify victims that were warned but not ended."""
        host, was, self.state = self._host, self.state, OVER
        self._timer.cancel()
        del self._active[self.taker]
        self.shared.engage()
        if self.placeholders:
            host.placeholders.free(self.placeholders)
            host.look_again()  # no pass would follow if this is not due to a message
        for jobid in sorted(self.held):
            self._restore_end(jobid)
            if jobid in self.ended:
                self._running.ends(jobid)
            elif was == WARNED:
                self._spare_victim(jobid, why)
        plan = host.planning.current() if self.in_promise else None
        if plan is not None:
            plan.pin(self.taker, stays=False)
            if plan.stale():  # they move now if they have to, before a job starts
                host.decision.extended()
        self.shared.store()
        if self._classes.entries:
            host.readmit(self.shared.rule, self.taker)
            self.shared.takers.search_soon()

    # -- the start of the taker --------------------------------------------------------------------

    def _alloc_checked(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Allocate resources to the taker; None: they are not free, and what is free of its place is
        kept on. Raises JobDeferred if a rule refuses them."""
        self._host.placeholders.free(self.placeholders)
        try:
            alloc = self._alloc(job, plan)
            self._host.admission.check_allocation(job, self._host.resources)
            return alloc
        except InsufficientResources as exc:
            self.keep()
            if isinstance(exc, JobDeferred):
                raise
            return None

    def _start_out_of_turn(self, job: PendingJob) -> None:
        """Start the taker if it fits now, regardless of others ahead of it; give up if another rule
        defers it."""
        host, rule = self._host, self.shared.rule
        self._out_of_turn = True
        try:
            alloc = host.allocate(job, host.planning.current())
        except InfeasibleRequest as exc:
            host.refuse(job, exc)
        except JobDeferred as why:
            if why.rule is not rule:
                if self.in_promise:
                    host.defer(job, why)  # its promise was lost in the trial
                self.give_up(str(why), "rule")
        except InsufficientResources:
            pass  # retried at the next event
        else:
            host.decision.starts_out_of_turn(job)
            host.start_out_of_turn(rule, job, alloc, selection_type="reserved")
        finally:
            self._out_of_turn = False

    # -- after a reload ----------------------------------------------------------------------------

    def restore(self) -> None:
        """Continue from the record: the running jobs are known."""
        running = self._running.jobs
        self.held &= running.keys()
        ended = {jobid for jobid in self.held if running[jobid].was_ended}
        self.state = ENDING if self.held <= ended else WARNED
        for jobid in ended:
            running[jobid].ending = None
            self._note_ended(jobid)
        self.enter()

    # -- requests to the job manager ---------------------------------------------------------------

    def _taker_name(self) -> str:
        """Return the name of the taker in texts for other users."""
        private = is_private(self._host.configuration())
        return f"a job{self._of_queue}" if private else name_of(self.taker)

    def _warn_victim(self, victim: Victim) -> None:
        note = f"will end at {clock(self.deadline)} for a job{self._of_queue}"
        self._raise(victim.jobid, 1, note)
        cls = self._classes.entries.get(victim.cls)
        if cls is not None and cls.signal:
            self._send("kill", victim.jobid, signum=cls.signal)

    def _spare_victim(self, jobid: int, why: str) -> None:
        """Tell a warned job that it may continue."""
        self._raise(jobid, 1, f"will not be ended now: {why}")

    def _note_ended(self, jobid: int) -> None:
        self.ended.add(jobid)
        self._host.running[jobid].ending = self.expected

    def _end_victim(self, victim: Victim) -> None:
        """End a victim for the taker, and count it."""
        jobid, now = victim.jobid, self._host.now()
        job = self._host.running[jobid]
        self._note_ended(jobid)
        ran = duration_text(max(0.0, now - victim.start), 2)
        taker, private = self._taker_name(), is_private(self._host.configuration())
        of_queue = f" ({self.queue})" if self.queue and not private else ""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        mark = f"{stamp} for {taker}, class {victim.cls}"  # {user.preempted} of flux jobs -o
        self._send("memo", jobid, memo={"preempted": mark})

        def done(error: int) -> None:
            if error == 0:
                counts = self._counts.of(victim)
                counts["victims"] += 1
                counts["node_hours"] += victim.node_hours(now)
                return
            self.ended.discard(jobid)
            job.ending = None
            one = self._running.jobs.get(jobid)
            if error not in NOT_THERE and one is not None:
                one.left_alone = True
                if self.state != OVER:
                    self._refused(jobid, f"{name_of(jobid)} cannot be ended")

        self._raise(jobid, 0, f"preempted for {taker}{of_queue}; ran {ran}", done)


def clock(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))
