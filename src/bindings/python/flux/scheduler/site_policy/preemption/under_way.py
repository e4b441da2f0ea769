# SPDX-License-Identifier: LGPL-3.0-or-later
"""A current preemption, from the decision to the start of the taker, the job for which victims end:
the base class of its two kinds, and the kind for a job without a promise (`loans` has the other).

The free part of the taker's *place* is kept for it, and more as victims free theirs, until it starts
there; what they hold of it is planned for it from their own ends on. Others may use the rest of the
same ranks.

No code here waits for an answer: the job manager may itself be waiting for the scheduler.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import inf
from typing import Any, Callable

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.plan.plan import Plan
from flux.resource.pool.inventory import common, pairs, selected_ranks
from flux.resource.pool.masks import idset_text, popcount
from flux.resource.request import Claimant, Shape
from flux.resource.ResourceCount import ResourceCount
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.admission import Deferral, JobDeferred
from flux.scheduler.disclosure import Reason, is_private
from flux.scheduler.host import NO_TIMER, name_of
from flux.scheduler.requests import PendingJob
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
    PreemptionState,
    Victim,
    Waiting,
    as_end,
    jobs_of_classes,
)
from flux.scheduler.times import duration_text
from flux.scheduler.trial import Place, Trial


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

    # -- differences between the kinds of preemption -----------------------------------------------

    @abstractmethod
    def enter_record(self, record: dict[str, Any]) -> None:
        """Add it to the stored record."""

    def reason(self) -> Reason | None:
        """Return why the taker waits, in a sentence; None if it waits for its promised time."""
        return None

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
        """Schedule the next step if the taker did not start when its last victim had ended."""

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
        places = (selection for selection, _ in self.places)
        return [jobid for place in places for jobid in hold(self.ranks, until, place)]

    def keep(self) -> None:
        """Keep the free part of the taker's place for it."""
        self._host.placeholders.free(self.placeholders)
        self.placeholders = self._hold()

    def keep_if_free(self) -> None:
        """Keep resources freed by others for the taker, if these may be part of its place."""

    # -- running jobs ------------------------------------------------------------------------------

    def freed(self, jobid: int, final: bool) -> None:
        """Keep the resources freed by a victim for the taker; called before any job is examined."""
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
            host.admission.ask_again()
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
            if plan.breaks_a_promise():  # they move now if they have to, before a job starts
                host.decision.extended()
        self.shared.store()
        if self._classes.entries:
            host.readmit(self.shared.rule, self.taker)
            self.shared.takers.search_soon()

    # -- the start of the taker --------------------------------------------------------------------

    def _alloc_checked(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Allocate resources to the taker; None: they are not free, and the free part of its place
        stays kept. Raises JobDeferred if a rule refuses them."""
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
            if why.rule is not rule and (self.in_promise or self.state == ENDING):
                self.give_up(str(why), "rule")
                if self.in_promise:
                    host.defer(job, why)  # its promise was lost in the trial
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


class Eviction(Preemption):
    """Running jobs that end, after a grace, for a pending one without a promise: they are chosen for
    it, and its place is kept by placeholders until it starts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        #: victim -> ids of the promises that keep what it holds of the place after its own end
        self.rests: dict[int, list[int]] = {}

    def enter_record(self, record: dict[str, Any]) -> None:
        kept = ("queue", "userid", "decided", "deadline", "expected", "taker")
        stored: dict[str, Any] = {key: getattr(self, key) for key in kept}
        stored["ranks"] = idset_text(self.ranks)
        stored["victims"] = [one.to_dict() for one in self.victims.values()]
        record["preemptions"].append(stored)

    def reason(self) -> Reason:
        classes = jobs_of_classes(self.victims.values())
        if self.state == ENDING and not self.held:
            return Reason(
                f"{classes} ended for it; waits for resources of others there",
                "waits for resources that are given back",
            )
        if self.state == ENDING:
            return Reason(f"waits for {classes} to end", "waits for resources that are given back")
        when = clock(self.deadline)
        end = "ends" if len(self.victims) == 1 else "end"
        return Reason(
            f"{classes} {end} for it at {when}", f"resources are given back for it at {when}"
        )

    def would_break_a_promise(self, job: PendingJob) -> bool:
        """Whether a present promise would break if the victims did not end: without their ends, and
        without a loan, which would be over, promises must hold. `job`: the taker."""
        host, lent, running = self._host, self._active.get(self.taker), self._running
        ends, without = dict[int, float](), host.decision.yielding(job)
        if lent is not None:
            ends = {jobid: as_end(running.own_end(jobid)) for jobid in lent.held}
            without.update(lent.rests.values())
        plan, end = host.planning.current(), self._end_of_taker(self.decided)
        return self._breaks_a_promise(ends, without) or not (
            plan is None or plan.has_tokens(self.taker, job.resource_request, end)
        )

    def begin(self, one: Waiting, text: str) -> None:
        """Record it. `text` describes the victims."""
        host, lent = self._host, self._active.get(self.taker)
        plan = host.planning.current()
        one.tries += 1
        if plan is not None:
            plan.cancel(self.taker)  # as in the trial, so that others can move to its ranks
        if lent is not None:
            lent.end("the job of that time starts earlier")
        self.enter()
        if plan is not None:
            plan.stale()  # promises on ranks kept from now on move before a job starts
        # From now on the plan has another time for this job.
        self.defer_taker()
        names = ", ".join(map(name_of, self.victims))
        host.log.info(f"preemption: {one.job.name} is to start by ending {names}: {text}")
        # The pass is first: a limit may refuse the taker once others start in its promised time.
        host.look_again()
        self.shared.store(self._recorded)

    # -- the place of the taker --------------------------------------------------------------------

    @property
    def keeps_ranks(self) -> bool:
        """Whether all that is free on its ranks is kept for the taker, not only its place: this is
        unknown, after a reload, or the taker shares ranks only with some jobs, so that others stay
        off them."""
        return self._claimant is not None or not self.places

    @property
    def _claimant(self) -> Claimant | None:
        """The taker as one of jobs that share ranks only with some others, if it is pending."""
        return getattr(self.job and self.job.resource_request, "claimant", None)

    def _hold(self) -> list[int]:
        if not self.keeps_ranks:
            return super()._hold()
        hold = self._host.placeholders.hold_free
        return hold(self.ranks, self._kept_until(), claimant=self._claimant)

    def keep_if_free(self) -> None:
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
        return self._would_break(plan, ends or {}, without, self._hold_all)

    def _hold_all(self) -> list[int]:
        """Keep its place. Return the ids of placeholders and promises."""
        return [*self._hold(), *chain.from_iterable(self._hold_rests().values())]

    def _hold_rests(self) -> dict[int, list[int]]:
        """Keep the parts of its place that victims hold, from their own ends to the taker's, so that
        promises hold whether they end for it or not. Return the ids of these promises by victim,
        without the victims in `rests`."""
        host, plan, job = self._host, self._host.planning.current(), self.job
        found: dict[int, list[int]] = {}
        if plan is None or job is None or not host.decision.looks_past_heads:
            return found
        until, keep = self._end_of_taker(host.now()), host.placeholders.keep_later
        for jobid in sorted(self.held - self.rests.keys()):
            end, held = self._running.own_end(jobid), host.resources.held(jobid)
            if end < until:
                parts = [common(held, place) for place, _ in self.places] or [held]
                requests = [self._request_for(job, plan, *one) for p in parts for one in pairs(p)]
                found[jobid] = [keep(request, end, until) for request in requests]
        return found

    def _drop_rests(self, jobids: Iterable[int]) -> None:
        """Keep what some victims hold no longer after their own ends."""
        for jobid in jobids:
            self._host.placeholders.free(self.rests.pop(jobid, []))

    def _request_for(self, job: PendingJob, plan: Plan, ranks: int, units: int) -> Any:
        """Return a request for a part of the place: some units of some ranks (a mask)."""
        request = job.resource_request
        shape, nodes = request.shape, popcount(ranks)
        cores, gpus, *amounts = self._host.resources.inventory.counts_of(units)
        if not plan.counts(request):
            none = (0,) * len(amounts)
            part = Shape.from_fields(
                node_count=ResourceCount.parse(nodes),
                slot_size=cores,
                gpu_per_slot=gpus,
                slot_amounts=none,
                node_amounts=tuple(amounts),
            )
            return request.with_shape(part.on_ranks(ranks))
        if shape.node_count is not None:
            return request.with_shape(shape.replace(node_count=ResourceCount.parse(nodes)))
        slots = ResourceCount.parse(nodes * cores // shape.slot_size)
        return request.with_shape(shape.replace(slot_count=slots))

    def _end_of_taker(self, now: float) -> float:
        """Return the end of the taker; infinite: unknown."""
        length = 0.0 if self.job is None else getattr(self.job.resource_request, "duration", 0.0)
        # It may start later than expected: a clean-up or a reload of the scheduler takes time.
        return max(self.expected, now) + length if length > 0 else inf

    def _planned_end(self, end: float) -> float:
        """Return the planned end of a victim, from its own `end` (infinite: none); 0: none.

        If promises are made, they must hold whether the victim ends or not. In strict order there
        are none, and the estimate of the taker's start must be right.
        """
        return as_end(end) if self._host.decision.looks_past_heads else min(end, self.expected)

    def _kept_until(self) -> float:
        now = self._host.now()
        if not self._host.decision.looks_past_heads or self.job is None:
            return max(self.expected, now + 1.0)
        return as_end(max(self._end_of_taker(now), now + 1.0))

    def keep(self) -> None:
        super().keep()
        self.rests.update(self._hold_rests())
        self._keep_licences()
        if self._host.now() > self.expected:
            self._host.planning.check_promises()  # the taker will end later than planned

    def _keep_licences(self) -> None:
        """Keep the planned licences of the taker for it, if it is deferred: it has no promise."""
        plan, job, now = self._host.planning.current(), self.job, self._host.now()
        if plan is not None and job is not None and job.jobid in self._host.admission.deferred:
            plan.keep_tokens(job.jobid, job.resource_request, now, self._end_of_taker(now))

    def freed(self, jobid: int, final: bool) -> None:
        self._drop_rests([jobid])
        super().freed(jobid, final)

    def extended(self, jobid: int, end: float) -> None:
        self._drop_rests([jobid])
        super().extended(jobid, end)
        self.keep()

    def _restore_end(self, jobid: int) -> None:
        self._drop_rests([jobid])
        super()._restore_end(jobid)

    def end(self, why: str) -> None:
        plan = self._host.planning.current()
        if plan is not None:
            plan.cancel(self.taker)
        super().end(why)

    def _choose_place(self, at_deadline: bool = False) -> bool:
        """Choose the place of the taker again, on its ranks: among the resources kept for it, those
        of victims and, unless a victim was ended, the free ones there. Return False if it does not
        fit. `at_deadline`: spare victims that need not end, since others have made room, and give
        up if a rule would keep the taker from starting there."""
        host, plan, before, job = self._host, self._host.planning.current(), self.places, self.job
        assert plan is not None and job is not None, "the pool can plan, and the job is pending"
        victims = [jobid for jobid in self.victims if jobid in self.held]
        own = set(chain.from_iterable(self.rests.values()))
        there = job.resource_request.on_ranks(self.ranks)

        def without_victims(yielding: Iterable[int]) -> Trial:
            trial = Trial(plan, there, yielding={*yielding, *own})
            if self.ended and victims:
                host.placeholders.hold_free(self.ranks, self._kept_until(), pool=trial.pool)
            for jobid in (*self.placeholders, *victims):
                trial.take_out(jobid)
            return trial

        # Promises are not in the way of its place, but victims have to end so that these are kept.
        trial, left = without_victims(plan.promises()), set(victims)
        if not trial.fits():
            return False
        strict = without_victims(host.decision.yielding(job)) if at_deadline else None
        if strict is not None and strict.fits():
            left = strict.needed(victims)
        for jobid in set(victims) - left:
            trial.put_back(jobid)
        offer = trial.offer(partial(host.admission.second_look, job))
        if offer is None:
            return False
        self.places = [offer[0]]
        left = {jobid for jobid in left if self._is_on(jobid, offer[0])}
        if at_deadline and offer[1] is not None:
            self.give_up(offer[1].deferral.text, "rule")
            return True  # given up for that reason
        self._drop_rests(list(self.rests))
        if self._breaks_a_promise():
            self.places = before
            self.keep()
            return bool(before)
        self.let_run([jobid for jobid in victims if jobid not in left], "others have made room")
        self.keep()
        plan.stale()
        if self.places != before:
            host.look_again()  # what is kept no longer may let others start
        return True

    def ranks_changed(self) -> None:
        """Choose the taker's place again, as after a reload, and try to start it; or victims, if a
        node kept for it is down."""
        if self.state == OVER or self.job is None:
            return
        if self.ranks & ~self._host.resources.eligible_ranks(self.job.resource_request):
            self._choose_anew("a node kept for it went down", "node")
            return
        self._choose_place()
        self.try_to_start()
        self.retry_start()

    def _spare_unneeded(self) -> None:
        # Resources may have been freed without a notice to this rule, for example when a node came up.
        self.try_to_start()
        if self.state != OVER and not self._choose_place(at_deadline=True):
            self._choose_anew("it would not fit there any more", "node")
        if self.state != OVER and not self.held:
            self._choose_anew("no job has to end for it, and it does not start", "node")

    def _choose_anew(self, why: str, cause: str) -> None:
        """Choose victims again, unless that was done too often: the resources kept for the taker are
        lost. Done at once, before another job gets the remaining ones."""
        self.give_up(why, cause)
        self.shared.takers.consider(self.taker)

    def _refused(self, jobid: int, why: str) -> None:
        self._choose_anew(why, "refused")

    # -- the start of the taker --------------------------------------------------------------------

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Implement `GivingRule.allocate` for the taker: allocate its place or, until victims are
        ended, any resources."""
        alloc = self._alloc_checked(job, plan)
        if alloc is None and self._host.decision.looks_past_heads:
            raise JobDeferred(self.shared.rule, self._deferral())
        if alloc is None:
            # In strict order the jobs behind it wait for it, as before.
            raise InsufficientResources(self._deferral().text)
        return alloc

    def _alloc(self, job: PendingJob, plan: Plan) -> ResourcePool:
        pool, request = self._host.resources, job.resource_request
        usable = pool.eligible_ranks(request) & ~plan.closed_now(request)
        for place in self.places:
            if not selected_ranks(place[0]) & ~usable and pool.index.is_free(place[0]):
                alloc = pool.grant(job.jobid, request, *place)
                end = self._end_of_taker(self.expected)
                plan.note_started(job.jobid, request, as_end(end) or None)
                return alloc
        past_heads = self._host.decision.looks_past_heads
        if self.state == ENDING or (self._out_of_turn and not past_heads):
            raise InsufficientResources("its place is not free")
        granted: ResourcePool = plan.alloc(job.jobid, request)
        return granted

    def defer_taker(self) -> None:
        """Defer the taker, unless jobs start in strict order: then those behind it wait for it, as
        before."""
        host, job = self._host, self.job
        if job and host.decision.looks_past_heads and job.jobid not in host.admission.deferred:
            host.defer(job, JobDeferred(self.shared.rule, self._deferral()))
            self._keep_licences()

    def try_to_start(self) -> None:
        """Start the taker if it fits now; a queued one is started from the queue."""
        if self.job is not None and self.state != OVER:
            self.defer_taker()
            self._start_out_of_turn(self.job)

    def retry_start(self) -> None:
        """Try at intervals to start a taker that did not start when its last victim had ended, also
        elsewhere on its ranks: the release of resources that no job holds, such as a reservation's,
        is not reported."""
        if self.state == ENDING and not self.held:
            self._set_timer(self._host.now() + SEARCH_INTERVAL_S, self.ranks_changed)

    def _deferral(self) -> Deferral:
        return Deferral(self.reason() or "", key=self.taker)

    def resume(self, one: Waiting) -> None:
        """Continue after the taker has come back after a reload."""
        self.job, one.tries = one.job, 1
        self.enter()  # its run time, and so the end of the kept resources, is known now
        # in another reactor turn, when it is in the queue
        self._host.call_at(self._host.now(), self.ranks_changed)
        self.await_step()


def clock(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))
