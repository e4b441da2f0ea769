# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs in one rack, or in as few as can be: ``[topology.LEVEL]``.

A level, such as ``rack``, is a set of groups of nodes. A job says with ``system.placement`` how it has
to be placed at a level:

- ``required``: all of its nodes, or each segment of them, in one group. Until that is possible it
  waits as for resources: it is promised the earliest time at which one of the groups has room.
- ``preferred``: the same until it has waited for ``wait``, then anywhere. Promises before that are for
  one group.

While there are levels, the pool puts any other job into as few groups as it can, among groups into
the fullest, so that whole groups stay free; no job waits longer for that. R says nothing of groups; a
job that has asked for a placement is annotated with the groups it got (``sched.placement``).

The rule turns what a job asks for into its request (`flux.resource.request.Shape.within`); all else is
in the pool (`flux.resource.pool.groups`), so that plans, reasons and ``flux sched when`` know of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flux.resource.errors import InfeasibleRequest
from flux.resource.pool.groups import Groups, Within
from flux.resource.pool.masks import popcount
from flux.scheduler.host import counted
from flux.scheduler.site_policy.fields import Fields
from flux.scheduler.site_policy.table_rule import TableRule

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.attributes import SystemAttributes
    from flux.scheduler.host import ErrorReporter, Timer
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.rule_host import RuleHost

MODES = ("required", "preferred")


class Level(NamedTuple):
    """One level, as its table has it.

    Attributes:
        groups (tuple): of ``(name, hostlist)``; empty if they are told by properties
        prefix (str): nodes with a property that begins so are of the group that the rest of it names;
            empty if there is none
    """

    groups: tuple[tuple[str, str], ...]
    prefix: str


class Wanted(NamedTuple):
    """What a jobspec says of the placement of its job.

    Attributes:
        level (str): of which level the groups are
        mode (str): one of `MODES`
        segment (int or None): nodes of a segment; None: there are none
        most (int or None): in at most so many groups; None: one, or with segments any number
        wait (float): how long one that prefers it waits for it, seconds
    """

    level: str
    mode: str
    segment: int | None
    most: int | None
    wait: float


class Placed:
    """A job with a placement.

    Attributes:
        wanted (Wanted): what it asks for
        within (Within): the same, of the groups there are
        until (float or None): when it stops to wait for that, seconds since the epoch; None: never, or
            it does not
        timer (Timer or None): for that time
    """

    __slots__ = ("timer", "until", "wanted", "within")

    def __init__(self, wanted: Wanted, within: Within) -> None:
        self.wanted = wanted
        self.within = within
        self.until: float | None = None
        self.timer: Timer | None = None

    def stop_waiting(self) -> None:
        """It does not wait for that any more."""
        if self.timer is not None:
            self.timer.cancel()
        self.until = self.timer = None


def read_wanted(value: Any) -> Wanted:
    """Read ``system.placement``. A user writes it, so it is checked.

    Raises:
        ValueError: what is wrong; the text is for the user
    """
    table = Fields(value, "placement.")
    level = table.text("level")
    if level is None:
        raise ValueError("placement.level is missing: expected the name of a level, such as rack")
    wanted = Wanted(
        level,
        table.choice("mode", MODES, "required"),
        table.whole("segment", least=1),
        table.whole("max", least=1),
        table.seconds("wait", 0.0) or 0.0,
    )
    table.end()
    if wanted.wait and wanted.mode == "required":
        raise ValueError("placement.wait: what is required is waited for without end")
    return wanted


def within_of(wanted: Wanted, groups: Groups, request: Any) -> Within:
    """What a request has to be within, by what its job wants.

    Raises:
        ValueError: they do not go together
    """
    segment = wanted.segment
    if segment is None:
        return Within(groups, most=wanted.most or 1)
    nodes = request.shape.node_count
    if nodes is None or not nodes.fixed:
        raise ValueError("placement.segment: the job has to ask for a number of nodes")
    if nodes.min % segment:
        raise ValueError(
            f"placement.segment={segment}: {counted(nodes.min, 'node')} cannot be divided by that"
        )
    return Within(groups, segment, wanted.most)


class PlacementRule(TableRule):
    """Places jobs by groups of nodes, such as racks."""

    name = "placement"
    table = "topology"
    attributes = ("placement",)
    engaged = False  # there is no job with a placement yet

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        self._levels: dict[str, Groups] = {}
        self._jobs: dict[int, Placed] = {}

    def _engage(self) -> None:
        self.host.admission.engage(self, bool(self._jobs))

    # -- the table ---------------------------------------------------------------------------------

    def parse(self, key: str, value: Any) -> Level:
        table = Fields(value)
        prefix = table.text("property-prefix", "") or ""
        names = table.table("groups")
        table.end()
        if (names is None) == (not prefix):
            raise ValueError("groups: expected groups, or a property-prefix, and not both")
        groups = tuple(names.rest().items()) if names is not None else ()
        if names is not None and not groups:
            raise ValueError("groups={}: expected at least one")
        level = Level(groups, prefix)
        if groups and self.host.planning.pool_can("ranks_matching"):
            self._find(level)
        return level

    def _find(self, level: Level) -> dict[str, int]:
        """By the name of a group, mask of its ranks; no rank is in two.

        Raises:
            ValueError: groups that are listed are no hosts, or a host is in two of them
        """
        pool = self.host.resources
        found: dict[str, int] = {}
        taken = 0
        if level.prefix:
            properties = pool.inventory.properties
            for name in sorted(properties):
                if name.startswith(level.prefix) and name != level.prefix:
                    # A node with two such properties is of the first group.
                    mask = properties[name] & ~taken
                    taken |= mask
                    if mask:
                        found[name[len(level.prefix) :]] = mask
            return found
        for name, hosts in level.groups:
            try:
                mask = pool.ranks_matching({"hostlist": [hosts]})
            except (TypeError, ValueError, AttributeError):
                raise ValueError(
                    f"groups.{name}={hosts!r}: expected hosts such as 'n[0-17]'"
                ) from None
            if mask & taken:
                other = next(one for one, ranks in found.items() if ranks & mask)
                nodes = counted(popcount(mask & found[other]), "node")
                raise ValueError(f"groups.{name}={hosts!r}: {nodes} of it in group {other} as well")
            taken |= mask
            if mask:  # a part of a cluster, as an instance of a job, has some of the groups
                found[name] = mask
        return found

    def configure(self, entries: dict[str, Level]) -> None:
        for jobid, placed in self._jobs.items():
            placed.stop_waiting()
            job = self.host.pending(jobid)
            if job is not None:
                job.resource_request, job.prefers = _anywhere(job.resource_request), None
        self._jobs.clear()
        self._engage()
        if self.host.planning.pool_can("pack_by"):
            self._make_groups()
            # What was promised was for groups as they were.
            self.host.planning.renew()

    def _make_groups(self) -> bool:
        """Find the groups of all levels; whether any has changed."""
        levels = {}
        for level, entry in self.entries.items():
            found = self._find(entry)
            before = self._levels.get(level)
            if before is not None and dict(zip(before.names, before.masks)) == found:
                levels[level] = before
            else:
                levels[level] = Groups(level, found)
        changed = levels != self._levels
        self._levels = levels
        by_size = sorted(
            [groups for groups in levels.values() if groups.masks],
            key=lambda groups: popcount(groups.ranks) / len(groups.masks),
            reverse=True,
        )
        self.host.resources.pack_by(by_size)
        return changed

    def ranks_changed(self, lost: bool) -> None:
        # Properties of nodes are what groups may be told by.
        if any(entry.prefix for entry in self.entries.values()) and self._make_groups():
            self.host.tell_pending(self)

    # -- a job that waits --------------------------------------------------------------------------

    def _placed(self, request: Any, attributes: SystemAttributes) -> Placed:
        """What a job with this request wants.

        Raises:
            ValueError: it makes no sense here
        """
        wanted = read_wanted(attributes.get("placement"))
        groups = self._levels.get(wanted.level)
        if groups is None:
            known = ", ".join(sorted(self._levels)) or "none"
            raise ValueError(
                f"placement.level={wanted.level!r}: there is no such level: there are {known}"
            )
        return Placed(wanted, within_of(wanted, groups, request))

    def as_queued(self, request: Any, attributes: SystemAttributes) -> Any:
        placed = self._placed(request, attributes)
        return request if placed.wanted.mode == "preferred" else _together(request, placed)

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        before = self._jobs.pop(job.jobid, None)
        if before is not None:
            before.stop_waiting()
        job.prefers = None
        anywhere = _anywhere(job.resource_request)
        placed = self._placed(anywhere, attributes)
        self._jobs[job.jobid] = placed
        self._engage()
        together = _together(anywhere, placed)
        if placed.wanted.mode == "preferred":
            job.resource_request = anywhere
            until = job.came + placed.wanted.wait
            if until <= self.host.now():
                return
            try:
                self.host.resources.check_feasibility(together)
            except InfeasibleRequest:
                return  # it cannot have what it prefers
            level = placed.within.groups.level
            why = f"it waits for what it prefers (level {level}), and takes any nodes after that"
            placed.until, job.prefers = until, (why, until)
            placed.timer = self.host.call_at(until, lambda: self._wait_over(job.jobid))
        job.resource_request = together

    def _wait_over(self, jobid: int) -> None:
        """A job has waited for what it prefers: from now on it takes nodes anywhere."""
        placed, job = self._jobs.get(jobid), self.host.pending(jobid)
        if placed is not None and job is not None:
            placed.stop_waiting()
            job.prefers = None
            self.host.ask_for(job, _anywhere(job.resource_request))

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        placed = self._jobs.get(job.jobid)
        request = job.resource_request
        if placed is None or request.shape.within is not None or placed.within.segment == 1:
            return None  # that a job is in few groups is seen to for all
        try:
            found: ResourcePool = plan.alloc(job.jobid, _together(request, placed))
        except (OSError, ValueError):
            return None
        return found

    def cancel(self, jobid: int) -> None:
        placed = self._jobs.pop(jobid, None)
        if placed is not None:
            placed.stop_waiting()
            self._engage()

    # -- a job that runs ---------------------------------------------------------------------------

    def start(self, job: PendingJob, alloc: ResourcePool) -> dict[str, Any] | None:
        placed = self._jobs.get(job.jobid)
        if placed is None:
            return None
        self.cancel(job.jobid)
        groups = placed.within.groups
        names = ",".join(groups.names_of(self.host.resources.held_ranks(job.jobid)))
        return {"placement": f"{groups.level} {names}"} if names else {}

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob, expected_start: float | None, first: bool) -> dict[str, Any]:
        """What a job asks for, and until when it waits for that (seconds since the epoch)."""
        placed = self._jobs.get(job.jobid)
        if placed is None:
            return {}
        wanted = placed.wanted
        return {
            "placement": {
                "level": wanted.level,
                "mode": wanted.mode,
                "segment": wanted.segment,
                "max": placed.within.most,
                "until": placed.until,
            }
        }

    def levels(self) -> list[dict[str, Any]]:
        """Of each level: ``level``; how many ``groups`` there are, and how many ``idle_groups`` of
        which all nodes are up and nothing is in use; the ``nodes`` in groups; ``idle_nodes``, the
        most such nodes that one group has; and how many jobs are ``waiting`` for groups.

        O(groups + jobs with a placement).
        """
        pool = self.host.resources
        idle, ranks = pool.idle_ranks & pool.eligible_ranks(), pool.ranks
        found = []
        for level, groups in self._levels.items():
            masks = [mask & ranks for mask in groups.masks if mask & ranks]
            found.append(
                {
                    "level": level,
                    "groups": len(masks),
                    "idle_groups": sum(mask & idle == mask for mask in masks),
                    "nodes": popcount(groups.ranks & ranks),
                    "idle_nodes": max((popcount(mask & idle) for mask in masks), default=0),
                    "waiting": self._waiting(groups),
                }
            )
        return found

    def _waiting(self, groups: Groups) -> int:
        """How many pending jobs start only in such groups by now: not those that would have
        preferred it, and wait for that no more."""
        count = 0
        for jobid, placed in self._jobs.items():
            if placed.within.groups is groups:
                job = self.host.pending(jobid)
                count += job is not None and job.resource_request.shape.within is not None
        return count

    def stats(self) -> dict[str, Any]:
        return {"topology": self.levels()} if self._levels else {}


def _together(request: Any, placed: Placed) -> Any:
    """A request for the groups that its job wants."""
    return request.with_shape(request.shape.replace(within=placed.within))


def _anywhere(request: Any) -> Any:
    """A request without regard to groups.

    Raises:
        ValueError: it is none that a pool places by ranks
    """
    shape = getattr(request, "shape", None)
    if shape is None:
        raise ValueError("placement: this pool does not place by groups of nodes")
    return request if shape.within is None else request.with_shape(shape.replace(within=None))
