# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs in one rack, or in the minimum number of racks: ``[topology.LEVEL]``.

A level, such as ``rack``, is a set of groups of nodes. A job's ``system.placement`` names one:

- ``required``: all of its nodes, or each segment of them, in one group. Until that is possible it
  waits as for resources: it is promised the earliest time at which a group has room.
- ``preferred``: the same until it has waited for ``wait``, then anywhere.

If there are levels, the pool places all other jobs in the minimum number of groups, the fullest
first, so that whole groups stay free; no job waits longer for that. R does not contain groups; a
job with a placement is annotated with its groups (``sched.placement``).

The rule adds the placement to the job's resource request (`flux.resource.request.Shape.within`);
the pool does the rest (`flux.resource.pool.groups`), so that plans and reasons respect it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from flux.resource.errors import InfeasibleRequest
from flux.resource.pool.groups import GroupBinding, Groups
from flux.resource.pool.masks import popcount
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.host import NO_TIMER, ErrorReporter, Timer, counted
from flux.scheduler.pools import missing_hosts
from flux.scheduler.requests import PendingJob
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.table_rule import TableRule
from flux.scheduler.site_policy.tables import Fields

MODES = ("required", "preferred")


class Level(NamedTuple):
    """A level, as in its table."""

    # of ``(name, hostlist)``; empty if properties define the groups
    groups: tuple[tuple[str, str], ...]
    # prefix of properties that define groups: the rest of a node's property is the name of its
    # group; empty if none do
    prefix: str


class Wanted(NamedTuple):
    """A job's placement, from its jobspec."""

    level: str  # the level of the groups
    mode: str  # one of `MODES`
    segment: int | None  # number of nodes of a segment; None: no segments
    most: int | None  # maximum number of groups; None: one, or unlimited with segments
    wait: float  # with ``preferred``: maximum wait for it, seconds


@dataclass(eq=False)
class Placed:
    """A job with a placement."""

    wanted: Wanted  # its placement
    within: GroupBinding  # the placement, in terms of existing groups
    timer: Timer = (
        NO_TIMER  # for the end of its wait for the placement, if it waits and there is one
    )


def read_wanted(value: Any) -> Wanted:
    """Parse ``system.placement``. It is user input, so it is checked. Raises ValueError if it is
    invalid; the text is for the user."""
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
        raise ValueError(
            "placement.wait: a required level has no wait: the job waits for it without end"
        )
    return wanted


def within_of(wanted: Wanted, groups: Groups, request: Any) -> GroupBinding:
    """Return the `GroupBinding` of a request with its job's placement. Raises ValueError if they
    conflict."""
    segment = wanted.segment
    if segment is None:
        return GroupBinding(groups, most=wanted.most or 1)
    nodes = request.shape.node_count
    if nodes is None or not nodes.fixed:
        raise ValueError("placement.segment: the job has to ask for a number of nodes")
    if nodes.min % segment:
        raise ValueError(
            f"placement.segment={segment}: {counted(nodes.min, 'node')} cannot be divided by that"
        )
    return GroupBinding(groups, segment, wanted.most)


class PlacementRule(TableRule):
    """Places jobs by groups of nodes, such as racks."""

    name = "placement"
    table = "topology"
    attributes = ("placement",)
    changes_requests = True

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        self._levels: dict[str, Groups] = {}
        self._jobs: dict[int, Placed] = {}

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
        """Return {name of group: mask of its ranks}; no rank is in two. Raises ValueError if a
        listed group is not a list of hosts, or a host is in two groups."""
        pool = self.host.resources
        found: dict[str, int] = {}
        taken = 0
        if level.prefix:
            properties = pool.inventory.properties
            for name in sorted(properties):
                if name.startswith(level.prefix) and name != level.prefix:
                    # A node with two such properties is in the first group.
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
            if mask:  # part of a cluster, such as a job's instance, has only some of the groups
                found[name] = mask
        return found

    def doubts(self, entries: dict[str, Level]) -> Iterator[tuple[str, str]]:
        can_find = self.host.planning.pool_can("ranks_matching")
        for key, level in entries.items() if can_find else ():
            for name, hosts in level.groups:
                if missing := missing_hosts(self.host.resources, hosts):
                    yield key, f"groups.{name}={hosts!r}: {missing} not in this instance"
            if level.prefix and not self._find(level):
                yield key, f"property-prefix={level.prefix!r}: no node has such a property"

    def configure(self, entries: dict[str, Level]) -> None:
        self._forget_all()
        if self.host.planning.pool_can("pack_by"):
            self._make_groups()
            # Existing promises are for the old groups.
            self.host.planning.renew()

    def _forget_all(self) -> None:
        for jobid in list(self._jobs):
            self.cancel(jobid)

    def _make_groups(self) -> bool:
        """Compute the groups of all levels. Return whether any has changed."""
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
        # properties of nodes may define groups
        if any(entry.prefix for entry in self.entries.values()) and self._make_groups():
            jobs = list(filter(None, map(self.host.pending, self._jobs)))
            self._forget_all()
            self.host.go_ahead(self.host.tell_pending([self], jobs))

    # -- pending jobs ------------------------------------------------------------------------------

    def _placed(self, request: Any, attributes: SystemAttributes) -> Placed:
        """Return the placement of a job with this request. Raises ValueError if it is impossible in
        this instance."""
        wanted = read_wanted(attributes.get("placement"))
        groups = self._levels.get(wanted.level)
        if groups is None:
            known = ", ".join(sorted(self._levels)) or "none"
            raise ValueError(
                f"placement.level={wanted.level!r}: there is no such level (known: {known})"
            )
        return Placed(wanted, within_of(wanted, groups, request))

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        anywhere = job.resource_request
        if not hasattr(anywhere, "shape"):
            raise ValueError("placement: this pool does not place by groups of nodes")
        placed = self._placed(anywhere, attributes)
        self._jobs[job.jobid] = placed
        together = self._together(anywhere, placed)
        if placed.wanted.mode == "preferred":
            if together is anywhere:
                return
            until = job.came + placed.wanted.wait
            if until <= self.host.now():
                return
            try:
                self.host.resources.check_feasibility(together)
            except InfeasibleRequest:
                return  # its preference cannot be met
            level = placed.within.groups.level
            why = f"it waits for its preference (level {level}), and takes any nodes after that"
            job.prefers = why, until
            placed.timer = self.host.call_at(until, lambda: self._wait_over(job.jobid))
        job.resource_request = together

    def _together(self, request: Any, placed: Placed) -> Any:
        """Return a request for the groups of its job's placement; the same request if it is for one
        node and all nodes are in groups."""
        shape, outside = request.shape, self.host.resources.ranks & ~placed.within.groups.ranks
        count = shape.node_count
        if not outside and count is not None and count.fixed and count.min == 1:
            return request
        return request.with_shape(shape.replace(within=placed.within))

    def _wait_over(self, jobid: int) -> None:
        """End a job's wait for its preference: from now on it takes any nodes."""
        job = self.host.pending(jobid)
        if job is not None:
            self.cancel(jobid)
            self.host.go_ahead(self.host.tell_pending([self], [job]))

    def _leave(self, jobid: int) -> Placed | None:
        placed = self._jobs.pop(jobid, None)
        if placed is not None:
            placed.timer.cancel()
        return placed

    def cancel(self, jobid: int) -> None:
        self._leave(jobid)

    # -- running jobs ------------------------------------------------------------------------------

    def start(self, job: PendingJob, alloc: ResourcePool) -> dict[str, Any] | None:
        placed = self._leave(job.jobid)
        if placed is None:
            return None
        groups = placed.within.groups
        names = ",".join(groups.names_of(self.host.resources.held_ranks(job.jobid)))
        return {"placement": f"{groups.level} {names}"} if names else {}

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob) -> dict[str, Any]:
        """Return a job's placement, and the end of its wait for it (seconds since the epoch)."""
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
                "until": None if placed.timer is NO_TIMER else placed.timer.when,
            }
        }

    def levels(self) -> list[dict[str, Any]]:
        """Return for each level: ``level``; the numbers of ``groups``, of ``idle_groups``, whose
        nodes are all up and idle, and of ``nodes`` in groups; ``idle_nodes``, the maximum number of
        up and idle nodes in one group; and the number of jobs ``waiting`` for groups.

        O(groups + jobs with placements).
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
        """Return the number of pending jobs that can start only in such groups now, without those
        whose wait for a preference is over."""
        count = 0
        for jobid, placed in self._jobs.items():
            if placed.within.groups is groups:
                job = self.host.pending(jobid)
                count += job is not None and job.resource_request.shape.within is not None
        return count

    def stats(self) -> dict[str, Any]:
        return {"topology": self.levels()} if self._levels else {}
