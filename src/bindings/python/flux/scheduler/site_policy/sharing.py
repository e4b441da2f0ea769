# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs that may share a node: ``[sharing.NAME]``.

Modes, the strictest first: ``node``: a job gets whole nodes; ``user`` and ``bank``: the jobs on a
node belong to one user or bank; ``free``: any jobs.

With ``node`` a request is changed on arrival: the pool sees a request for whole nodes. With
``user`` and ``bank`` a rank is *claimed* by the key (user or bank) of the first job on it, until
the last job there is freed, including clean-up. Jobs are placed beside those of their key.

Claims are in the plan (`flux.resource.plan.claims`): a job that waits for claimed ranks keeps its
place in the queue, and is promised the time at which the last job of another key has ended there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from flux.resource.plan.claims import Claims
from flux.resource.pool.masks import popcount
from flux.resource.pool.rv1 import object_of
from flux.resource.request import Claimant, Remembered, Shape
from flux.resource.ResourceCount import ResourceCount
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.disclosure import Reason
from flux.scheduler.host import ErrorReporter, counted
from flux.scheduler.requests import PendingJob, RunningJob
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.holdings import NOTHING, holding_of
from flux.scheduler.site_policy.table_rule import TableRule
from flux.scheduler.site_policy.tables import Fields, properties_missing, user_name

#: Modes, the strictest last.
MODES = ("free", "bank", "user", "node")

#: Modes in which a rank is claimed.
CLAIMING = ("user", "bank")


class Sharing(NamedTuple):
    """A rule, as in its table."""

    mode: str  # one of `MODES`
    queues: tuple[str, ...]  # applies to jobs of these queues; empty: of any
    properties: tuple[str, ...]  # applies on nodes with one of these properties; empty: on any


class Sharer(NamedTuple):
    """The properties of a job that determine the others with which it may share nodes."""

    whose: tuple[int | None, str, str | None]  # its user, bank and queue
    whole: int  # mask of the ranks that it gets only as whole nodes
    claimant: Claimant  # its key and the ranks that it claims, for each mode in use


def whole_nodes(shape: Shape, pool: ResourcePool, ranks: int) -> Shape:
    """Return a shape for the minimum number of whole nodes of some ranks (a mask) that hold the
    minimum of `shape`: slots of cores, or of containers such as sockets."""
    if shape.exclusive:
        return shape
    if shape.node_count is not None:
        return shape.replace(exclusive=True)
    slots = shape.slot_count.min
    kinds = [(each, popcount(mask & ranks)) for each, mask in pool.slots_by_rank(shape)]
    kinds = [(each, count) for each, count in kinds if count]
    most = max([each for each, _ in kinds], default=0)
    if not most:
        return shape  # it never fits; the pool has the better error
    # With several kinds of node there may be too few of the largest.
    for nodes in range(-(-slots // most), slots + 1):
        each = -(-slots // nodes)
        if sum(count for room, count in kinds if room >= each) >= nodes:
            return shape.replace(
                node_count=ResourceCount.parse(nodes),
                slot_count=ResourceCount.parse(each),
                exclusive=True,
            )
    return shape


class SharingRule(TableRule):
    """Separates the jobs of different users or banks, or all jobs, by nodes."""

    name = "sharing"
    table = "sharing"
    queues_set = "mode"
    changes_requests = True

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        self._forget_all()

    def _forget_all(self) -> None:
        self._jobs: dict[int, Sharer] = {}
        #: the running jobs, and their ranks
        self._claims = Claims()
        #: (user, bank, queue) -> `Sharer` of their jobs
        self._sharers: Remembered[tuple[Hashable, ...], Sharer] = Remembered()
        #: job id -> number of slots requested anywhere, of pending jobs that get whole nodes instead
        self._slots: dict[int, int] = {}

    # -- the table ---------------------------------------------------------------------------------

    def parse(self, key: str, value: Any) -> Sharing:
        table = Fields(value)
        rule = Sharing(
            table.choice("mode", MODES), table.names("queues"), table.names("properties")
        )
        table.end()
        if not self.host.planning.pool_can("plan"):
            raise ValueError(f"mode={rule.mode!r}: the pool of this scheduler cannot plan")
        return rule

    def doubts(self, entries: dict[str, Sharing]) -> Iterator[tuple[str, str]]:
        can_find = self.host.planning.pool_can("ranks_matching")
        for key, rule in entries.items() if can_find else ():
            for text in properties_missing({"properties": rule.properties}, self.host.resources):
                yield key, text

    def configure(self, entries: dict[str, Sharing]) -> None:
        self._forget_all()
        modes = {rule.mode for rule in entries.values()}
        #: the modes in which ranks are claimed
        self._kinds = tuple(mode for mode in CLAIMING if mode in modes)
        self._renew_plan()

    def _renew_plan(self) -> None:
        """Have the plan made again, with the present claims."""
        self.host.planning.claims = self._claims if self._kinds else None
        self.host.planning.renew()

    def ready(self) -> None:
        mixed = 0
        for claimant, on in self._claims.by_claimant():
            mixed |= on & self._claims.apart_from(claimant)
        if mixed:
            nodes = counted(popcount(mixed), "node")
            self.host.log.warning(f"sharing: jobs of several keys are on {nodes}: they stay")

    def needs(self, entries: dict[str, Sharing]) -> tuple[str, ...]:
        if any(rule.queues or rule.mode == "bank" for rule in entries.values()):
            return ("jobspec",)
        return ()

    def _where(self, queue: str | None) -> dict[str, int]:
        """Return {mode: mask of ranks on which it applies to jobs of a queue}: a node's rule
        overrides the queue's, and the strictest of several counts."""
        pool = self.host.resources
        on_nodes: dict[str, int] = dict.fromkeys(MODES, 0)
        everywhere = "free"
        for rule in self.entries.values():
            if rule.queues and not self.host.queue_names.any_covers(rule.queues, queue):
                continue
            if not rule.properties:
                everywhere = max(everywhere, rule.mode, key=MODES.index)
            for name in rule.properties:
                on_nodes[rule.mode] |= pool.ranks_matching({"properties": [name]})
        found, left = {}, -1
        for mode in reversed(MODES):
            found[mode] = on_nodes[mode] & left
            left &= ~on_nodes[mode]
        found[everywhere] |= left
        return found

    # -- pending jobs ------------------------------------------------------------------------------

    def _sharer(self, userid: int | None, bank: str | None, queue: str | None) -> Sharer:
        whose = (userid, bank or "", queue)
        sharer = self._sharers.get(whose)
        if sharer is None:
            keys, where = {"user": userid, "bank": whose[1]}, self._where(queue)
            claimant = Claimant(
                tuple(keys[mode] for mode in self._kinds),
                tuple(where[mode] for mode in self._kinds),
            )
            Remembered.kept += 256 + len(whose[1]) + len(queue or "")
            sharer = self._sharers[whose] = Sharer(whose, where["node"], claimant)
        return sharer

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        sharer = self._sharer(job.userid, attributes.bank, attributes.queue)
        self._jobs[job.jobid], request = sharer, job.resource_request
        ranks = self.host.facts.ranks_of(request) if sharer.whole else 0
        if ranks & sharer.whole:  # it gets some of its possible ranks only as whole nodes
            shape = whole_nodes(request.shape, self.host.resources, ranks)
            if shape is not request.shape:
                if request.shape.node_count is None:
                    self._slots[job.jobid] = request.shape.nslots
                request = request.with_shape(shape)
        # A job with whole nodes has no other jobs on them.
        if self._kinds and hasattr(request, "with_claimant") and not request.shape.exclusive:
            request = request.with_claimant(sharer.claimant)
        job.resource_request = request

    def signature(self, job: PendingJob) -> Hashable:
        sharer = self._jobs.get(job.jobid)
        if sharer is None or getattr(job.resource_request, "claimant", None) is None:
            return None
        return sharer.whose[2], *sharer.claimant.keys

    def cancel(self, jobid: int) -> None:
        if jobid not in self._claims.running:
            self._jobs.pop(jobid, None)
            self._slots.pop(jobid, None)

    # -- running jobs ------------------------------------------------------------------------------

    def start(self, job: PendingJob, alloc: ResourcePool) -> None:
        sharer = self._jobs.get(job.jobid)
        if sharer is not None:
            record = self.host.admission.counted.get(job.jobid)
            on = 0 if record is None or record.held is None else record.held.ranks
            on = on or self.host.resources.held_ranks(job.jobid)
            self._claims.enter(job.jobid, sharer.claimant, on)
            if job.jobid in self._slots:
                alloc.nslots = self._slots.pop(job.jobid)

    def hello(self, job: RunningJob) -> None:
        sharer = self._sharer(job.userid, job.attributes.bank, job.attributes.queue)
        self._jobs[job.jobid] = sharer
        on = holding_of(self.host.resources, job.jobid).ranks
        self._claims.enter(job.jobid, sharer.claimant, on)

    def free(self, jobid: int, R: Any, final: bool) -> None:
        if jobid in self._claims.running:
            self._claims.leave(jobid, -1 if final else NOTHING.plus(object_of(R)).ranks)
        if final:
            self._jobs.pop(jobid, None)

    def ranks_changed(self, lost: bool) -> None:
        if not lost or not any(rule.properties for rule in self.entries.values()):
            return
        before = {sharer.whose: sharer for sharer in self._jobs.values()}
        self._sharers.clear()
        if all(self._sharer(*whose) == sharer for whose, sharer in before.items()):
            return
        # Modes of nodes have changed. Running jobs stay.
        known, running = self._jobs, self._claims.running
        self._forget_all()
        for jobid, (claimant, on) in running.items():
            if jobid in known:  # others are placeholders
                sharer = self._jobs[jobid] = self._sharer(*known[jobid].whose)
                claimant = sharer.claimant
            self._claims.enter(jobid, claimant, on)
        self._renew_plan()
        self.host.go_ahead(self.host.tell_pending([self], self.host.all_pending()))

    # -- answers -----------------------------------------------------------------------------------

    def why(self, job: PendingJob) -> str | None:
        sharer, request, pool = self._jobs.get(job.jobid), job.resource_request, self.host.resources
        if sharer is None or getattr(request, "claimant", None) is None:
            return None
        apart, eligible = self._claims.apart_from(sharer.claimant), pool.eligible_ranks(request)
        if (
            not apart
            or pool.place_request(request, pool.index, eligible & ~apart) is not None
            or pool.place_request(request, pool.index, eligible) is None
        ):
            return None  # it fits, or would not fit without claims
        matching, shape = self.host.facts.ranks_of(request), request.shape
        least = max(1, shape.slot_size), shape.gpu_per_slot
        forbidden = apart & matching & pool.eligible(None)
        room = sum(popcount(mask) for _, mask in pool.index.fitting(least, forbidden))
        where = dict(zip(self._kinds, sharer.claimant.where))
        whose = "bank" if where.get("bank", 0) & matching and not where.get("user") else "user"
        verb, are = ("has", "is") if room == 1 else ("have", "are")
        return Reason(
            f"{counted(room, 'node')} {verb} room but {are} another {whose}'s",
            "nodes that it may be on have no room",
        )

    def stats(self) -> dict[str, Any]:
        claims: dict[tuple[str, Hashable], int] = {}
        for claimant, on in self._claims.by_claimant():
            for mode, key, where in zip(self._kinds, claimant.keys, claimant.where):
                if on & where:
                    claims[mode, key] = claims.get((mode, key), 0) | on & where
        pool = self.host.resources
        return {
            "claims": [
                {
                    "mode": mode,
                    "whose": user_name(key) if isinstance(key, int) else str(key),
                    "nodes": popcount(ranks),
                    "idle_cores": pool.free_cores(ranks),
                }
                for (mode, key), ranks in claims.items()
            ]
        }
