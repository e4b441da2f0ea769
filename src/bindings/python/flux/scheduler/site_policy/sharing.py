# SPDX-License-Identifier: LGPL-3.0-or-later
"""Who may be on a node together: ``[sharing.NAME]``.

Modes, the strictest first: ``node``, a job gets whole nodes; ``user`` and ``bank``, the jobs on a node
are all of one user or bank; ``free``, whoever comes.

With ``node`` a request is changed when it comes: the pool sees one for whole nodes. With ``user`` and
``bank`` a rank is *claimed* by the key (user or bank) of the first job on it, until the last job there is
freed, clean-up included. What the pool offers is checked against the claims: if strangers would meet, it is
given back, and the job asks again for other ranks than theirs. If there are none it is deferred until
something is freed. A job is put beside others of its key first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from flux.resource.pool.masks import idset_text, popcount
from flux.resource.pool.placement import slots_on
from flux.resource.pool.rv1 import object_of, read_lite
from flux.resource.ResourceCount import ResourceCount
from flux.scheduler.admission import Deferral
from flux.scheduler.host import counted
from flux.scheduler.site_policy.counts import RankCounts, user_name
from flux.scheduler.site_policy.fields import Fields
from flux.scheduler.site_policy.table_rule import TableRule

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.request import Shape
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.attributes import SystemAttributes
    from flux.scheduler.host import ErrorReporter
    from flux.scheduler.requests import PendingJob, RunningJob
    from flux.scheduler.site_policy.table_rule import SitePolicyHost

#: Modes, the strictest last.
MODES = ("free", "bank", "user", "node")

#: Modes in which a rank is claimed.
CLAIMING = ("user", "bank")

#: Of the jobs of one key that ask for the same and wait for claimed ranks, how many are examined again
#: when something is freed.
RETRIED = 4


class Sharing(NamedTuple):
    """One rule, as its table has it.

    Attributes:
        mode (str): one of `MODES`
        queues (tuple): for jobs of these queues; empty: of any
        properties (tuple): on nodes with one of these properties; empty: on any
    """

    mode: str
    queues: tuple[str, ...]
    properties: tuple[str, ...]


class Sharer(NamedTuple):
    """Of a job, what decides with whom it may share.

    Attributes:
        queue (str or None): its queue
        keys (dict): by claiming mode, whose it is
        where (dict): by mode, mask of the ranks on which it holds for the job
    """

    queue: str | None
    keys: dict[str, Hashable]
    where: dict[str, int]


def on_ranks(request: Any, ranks: int) -> Any:
    """A request for only some ranks (a mask) of those that it could use."""
    shape = request.shape
    only = {"ranks": [idset_text(ranks)]}
    constraint = {"and": [shape.constraint, only]} if shape.constraint else only
    return request.with_shape(shape.replace(constraint=constraint))


def whole_nodes(shape: Shape, pool: ResourcePool, ranks: int) -> Shape:
    """A shape for the fewest whole nodes that hold what `shape` asks for at least.

    Args:
        shape (Shape): what is asked for
        pool (ResourcePool): what there is
        ranks (int): mask of the ranks that may be used

    Raises:
        ValueError: it asks for containers of nodes
    """
    if shape.exclusive:
        return shape
    if shape.container_level is not None:
        raise ValueError(
            f"sharing: these nodes are given as a whole: ask for nodes, not for {shape.container_level}"
        )
    if shape.node_count is not None:
        return shape.replace(exclusive=True)
    slots = shape.slot_count.min
    kinds = [
        (slots_on(cores, gpus, shape), popcount(mask & ranks))
        for cores, gpus, mask in pool.node_kinds()
        if mask & ranks
    ]
    most = max([each for each, _ in kinds], default=0)
    if not most:
        return shape  # it never fits, which the pool says better
    nodes = -(-slots // most)
    # With nodes of several kinds there may be too few of the largest.
    while nodes <= slots:
        each = -(-slots // nodes)
        if sum(count for room, count in kinds if room >= each) >= nodes:
            return shape.replace(
                node_count=ResourceCount.parse(nodes),
                slot_count=ResourceCount.parse(each),
                exclusive=True,
            )
        nodes += 1
    return shape


class SharingRule(TableRule):
    """Keeps the jobs of different users or banks off each other's nodes, or all off each other's."""

    name = "sharing"
    table = "sharing"

    def __init__(self, host: SitePolicyHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        self._forget_all()

    def _forget_all(self) -> None:
        self._jobs: dict[int, Sharer] = {}
        #: by id of a running job, mask of the ranks it is on
        self._on: dict[int, int] = {}
        #: by mode and key, the ranks that its jobs are on, and those that they claim
        self._used: dict[tuple[str, Hashable], RankCounts] = {}
        self._claimed: dict[tuple[str, Hashable], RankCounts] = {}
        #: by queue, the modes of its jobs
        self._modes: dict[str | None, dict[str, int]] = {}
        #: by mode, key and where, ranks with strangers; void when a job starts or is freed
        self._strangers: dict[Any, int] = {}
        #: by id, the slots of jobs that have asked for slots, and get whole nodes
        self._slots: dict[int, int] = {}
        #: keys of deferrals
        self._waiting: set[Hashable] = set()

    # -- the table ---------------------------------------------------------------------------------

    def parse(self, key: str, value: Any) -> Sharing:
        table = Fields(value)
        rule = Sharing(
            table.choice("mode", MODES), table.names("queues"), table.names("properties")
        )
        table.end()
        return rule

    def elsewhere(self, config: dict[str, Any]) -> dict[str, Any]:
        found = {}
        queues = config.get("queues")
        for name, queue in queues.items() if isinstance(queues, dict) else ():
            value = queue
            for key in ("policy", "scheduler", "sharing"):
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None:
                place = f"queues.{name}.policy.scheduler.sharing"
                found[place] = {"mode": value, "queues": [name]}
        return found

    def configure(self, entries: dict[str, Sharing]) -> None:
        self._forget_all()

    def configured(self) -> None:
        self.ready()

    def ready(self) -> None:
        mixed = 0
        for jobid, sharer in self._jobs.items():
            on = self._on.get(jobid)
            if on:
                mixed |= on & self._strange(sharer)
        if mixed:
            nodes = counted(popcount(mixed), "node")
            self.host.log.warning(f"sharing: jobs of several keys are on {nodes}: they stay")

    def needs(self, entries: dict[str, Sharing]) -> tuple[str, ...]:
        if any(rule.queues or rule.mode == "bank" for rule in entries.values()):
            return ("jobspec",)
        return ()

    def _where(self, queue: str | None) -> dict[str, int]:
        """By mode, the ranks on which it holds for jobs of a queue: a node's rule beats the queue's,
        and of several the strictest counts."""
        found = self._modes.get(queue)
        if found is None:
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
            found = {}
            left = -1
            for mode in reversed(MODES):
                found[mode] = on_nodes[mode] & left
                left &= ~on_nodes[mode]
            found[everywhere] |= left
            self._modes[queue] = found
        return found

    # -- a job that waits --------------------------------------------------------------------------

    def _sharer(self, userid: int | None, attributes: SystemAttributes) -> Sharer:
        keys: dict[str, Hashable] = {"user": userid, "bank": attributes.bank or ""}
        return Sharer(attributes.queue, keys, self._where(attributes.queue))

    def queued(self, job: PendingJob, attributes: SystemAttributes) -> None:
        sharer = self._jobs[job.jobid] = self._sharer(job.userid, attributes)
        request = job.resource_request
        whole = sharer.where["node"]
        if whole and whole & self.host.facts.ranks_of(request):
            ranks = self.host.facts.ranks_of(request)
            shape = whole_nodes(request.shape, self.host.resources, ranks)
            if shape is not request.shape:
                if request.shape.node_count is None:
                    self._slots[job.jobid] = request.nslots
                job.resource_request = request.with_shape(shape)

    def _strange(self, sharer: Sharer) -> int:
        """Mask of the ranks on which a job would meet strangers: those that others have claimed, and
        those that others are on where it would claim them."""
        strange = 0
        for mode in CLAIMING:
            key, claims = sharer.keys[mode], sharer.where[mode]
            asked = (mode, key, claims)
            found = self._strangers.get(asked)
            if found is None:
                found = 0
                for (other_mode, other), ranks in self._claimed.items():
                    if other_mode == mode and other != key:
                        found |= ranks.ranks
                if claims:
                    for (other_mode, other), ranks in self._used.items():
                        if other_mode == mode and other != key:
                            found |= ranks.ranks & claims
                self._strangers[asked] = found
            strange |= found
        return strange

    def _own(self, sharer: Sharer) -> int:
        """Mask of the ranks that jobs of the same key have claimed."""
        own = 0
        for mode in CLAIMING:
            ranks = self._claimed.get((mode, sharer.keys[mode]))
            if ranks is not None:
                own |= ranks.ranks
        return own

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        sharer = self._jobs.get(job.jobid)
        request = job.resource_request
        if sharer is None or request.shape.exclusive:
            return None
        own = self._own(sharer) & ~self.host.resources.idle_ranks & ~self._strange(sharer)
        if not own:
            return None
        try:
            found: ResourcePool = plan.alloc(job.jobid, on_ranks(request, own))
        except (OSError, ValueError):
            return None  # not all of it is there
        return found

    def second_look(self, job: PendingJob, alloc: ResourcePool) -> Deferral | None:
        sharer = self._jobs.get(job.jobid)
        if sharer is None:
            return None
        strange = self._strange(sharer)
        if not strange or not self.host.resources.held_ranks(job.jobid) & strange:
            return None
        key = (*sharer.keys.values(), job.resource_request.shape)
        self._waiting.add(key)
        return Deferral(self._sentence(job, sharer), key=key)

    def other_requests(self, job: PendingJob) -> Iterator[Any]:
        sharer = self._jobs.get(job.jobid)
        if sharer is not None:
            strange = self._strange(sharer)
            if strange:
                usable = self.host.resources.ranks & ~strange
                if usable:
                    yield on_ranks(job.resource_request, usable)

    def _sentence(self, job: PendingJob, sharer: Sharer) -> str:
        request = job.resource_request
        impl = self.host.resources.impl
        matching = self.host.facts.ranks_of(request)
        strange = self._strange(sharer) & matching & impl.eligible(None)
        shape = request.shape
        fitting = impl.index.fitting(max(1, shape.slot_size), shape.gpu_per_slot, strange, False)
        room = sum(popcount(mask) for _, _, mask in fitting)
        whose = "bank" if sharer.where["bank"] & matching and not sharer.where["user"] else "user"
        verb, are = ("has", "is") if room == 1 else ("have", "are")
        return f"{counted(room, 'node')} {verb} room but {are} another {whose}'s"

    def keeps_promise(self, job: PendingJob) -> bool:
        sharer = self._jobs.get(job.jobid)
        if sharer is None or job.resource_request.shape.exclusive:
            return True
        return not self._strange(sharer) & self.host.facts.ranks_of(job.resource_request)

    def forget(self, jobid: int) -> None:
        if jobid not in self._on:
            self._jobs.pop(jobid, None)
            self._slots.pop(jobid, None)

    # -- a job that runs ---------------------------------------------------------------------------

    def started(self, job: PendingJob, alloc: ResourcePool) -> None:
        sharer = self._jobs.get(job.jobid)
        if sharer is not None:
            self._runs(job.jobid, sharer)
            slots = self._slots.pop(job.jobid, None)
            if slots is not None:
                alloc.impl.nslots = slots

    def _runs(self, jobid: int, sharer: Sharer) -> None:
        try:
            on = self.host.resources.held_ranks(jobid)
        except KeyError:
            return
        self._enter(jobid, sharer, on)

    def _enter(self, jobid: int, sharer: Sharer, on: int) -> None:
        """A job is on some ranks."""
        self._on[jobid] = on
        if not on:
            return
        self._strangers.clear()
        for mode in CLAIMING:
            place = mode, sharer.keys[mode]
            self._used.setdefault(place, RankCounts()).add(on)
            self._claimed.setdefault(place, RankCounts()).add(on & sharer.where[mode])

    def found_running(self, job: RunningJob) -> None:
        sharer = self._jobs[job.jobid] = self._sharer(job.userid, job.attributes)
        self._runs(job.jobid, sharer)

    def freed(self, jobid: int, R: Any, final: bool) -> None:
        on = self._on.get(jobid)
        if on is not None:
            gone = on
            if not final:
                gone = 0
                for mask, _, _ in read_lite(object_of(R)):
                    gone |= mask & on
            sharer = self._jobs[jobid]
            self._strangers.clear()
            # The last of a job's ranks may have come back before the job is through.
            for mode in CLAIMING if gone else ():
                place = mode, sharer.keys[mode]
                self._used[place].remove(gone)
                self._claimed[place].remove(gone & sharer.where[mode])
                if not self._used[place].ranks:
                    del self._used[place], self._claimed[place]
            self._on[jobid] = on & ~gone
            if final:
                del self._on[jobid], self._jobs[jobid]
        self._ask_again()

    def ranks_changed(self, lost: bool) -> None:
        if lost and any(rule.properties for rule in self.entries.values()):
            # Nodes may be of another mode now. What runs stays.
            on, slots = self._on, self._slots
            jobs = self._jobs
            self._forget_all()
            self._slots = slots
            for jobid, sharer in jobs.items():
                self._jobs[jobid] = sharer._replace(where=self._where(sharer.queue))
                if jobid in on:
                    self._enter(jobid, self._jobs[jobid], on[jobid])
        self._ask_again()

    def _ask_again(self) -> None:
        for key in list(self._waiting):
            self.host.readmit(self, key, RETRIED)
            if not self.host.admission.waiting(self, key):
                self._waiting.discard(key)

    # -- answers -----------------------------------------------------------------------------------

    def why(self, job: PendingJob) -> str | None:
        sharer = self._jobs.get(job.jobid)
        if sharer is None or not self.host.admission.is_deferred(job.jobid):
            return None
        return self._sentence(job, sharer)

    def stats(self) -> dict[str, Any]:
        claims = []
        for (mode, key), ranks in self._claimed.items():
            if ranks.ranks:
                whose = user_name(key) if isinstance(key, int) else str(key)
                claims.append({"mode": mode, "whose": whose, "nodes": len(ranks)})
        return {"claims": claims}
