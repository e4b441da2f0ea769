# SPDX-License-Identifier: LGPL-3.0-or-later
"""Build the jobs of a simulation, and their machine, from those of a trace."""

import bisect
import functools
import itertools
import math
import numbers
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Optional

from flux.scheduler.attributes import printable
from flux.simulate.job import NO_LIMIT, Job, Shape, in_microseconds, userids
from flux.simulate.machine import Machine, uniform
from flux.simulate.workload import lublin
from flux.simulate.workload.columns import moment
from flux.simulate.workload.formats import reader
from flux.simulate.workload.record import Notes, OptionError, Source, check_count
from flux.simulate.workload.text import counted, is_number
from flux_engine.resource.inventory import Inventory
from flux_engine.resource.state import targets

#: Round values that most users choose, in seconds.
HEADS = (
    [60 * minutes for minutes in (5, 10, 15, 20, 30, 45)]
    + [3600 * hours for hours in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 18, 24, 36, 48, 72, 96, 168)]
)  # fmt: skip

#: Shares of jobs: that request the maximum, that know their run time, that request a round value.
MOST, EXACT, ROUND = 0.2, 0.1, 0.9


def estimator(text):
    """Return ``limit(run, rng)``, the limit of a job without one. Raises OptionError if the text is invalid.

    Args:
        text (str): ``run``: the run time, as if users knew it; ``f:F``: the run time times a uniform random number from 1
            to F (the f-model); ``tsafrir``: after Tsafrir, Etsion and Feitelson (2005): a few round values, the largest most
            often, and uniform accuracy
    """
    if text == "run":
        return lambda run, rng: max(run, 1.0)
    if text.startswith("f:"):
        factor = float(text[2:]) if is_number(text[2:]) else 0.0
        if not 1 <= factor < 1e6:
            raise OptionError(f"estimates {text!r}: expected f:F with F at least 1")
        return lambda run, rng: max(run, 1.0) * rng.uniform(1, factor)
    if text == "tsafrir":
        return _popular
    raise OptionError(f"estimates {text!r}: expected none, run, f:F or tsafrir")


def _popular(run, rng):
    longer = HEADS[bisect.bisect_left(HEADS, max(run, 86400)) :]
    most = longer[0] if longer else run
    chance = rng.random()
    if chance < MOST:
        return float(most)
    run = max(run, 1.0)
    wanted = run if chance < MOST + EXACT else min(run / max(rng.random(), 0.01), most)
    if rng.random() < ROUND:
        index = bisect.bisect_left(HEADS, wanted)
        if index < len(HEADS):
            return float(max(run, HEADS[index]))
    return float(max(run, -(-wanted // 60) * 60))


#: Default number of jobs of a model.
MODEL_JOBS = 2000
#: Default number of nodes of a machine for a model.
MODEL_NODES = 128


@functools.lru_cache(4096)
def _same(limit):
    """Return an equal object, shared by all jobs with that limit: a million jobs have a few hundred
    limits."""
    return limit


#: Smaller times are not dates, but seconds since the start of a trace.
AGO = 1e8


#: Share of the jobs that may get less or more than in the trace without a warning: be cut at limits, or get whole nodes.
CUT = 0.03


@dataclass(eq=False)
class Workload:
    """Jobs and their machine.

    Attributes:
        jobs (list of Job): by submission, ties in the order of the trace
        unit (str): unit of sizes, "node" or "core"
        usable (Machine): the machine without its excluded nodes
        epoch (float): first submission, seconds since the epoch
        shaken (float): maximum shift of submissions in seconds; 0 for a model
        running (list): jobs that run from the beginning, see `LeanEngine`
        down (str): ranks that are down
        config (dict): further configuration from the source of the jobs
        queues (dict): configured queues, if the source of the jobs has them
    """

    jobs: list
    machine: Machine
    unit: str
    epoch: float
    notes: Notes
    name: str
    usable: Optional[Machine] = None
    shaken: float = 0.0
    running: Sequence = ()
    down: str = ""
    config: dict = field(default_factory=dict)
    queues: dict = field(default_factory=dict)

    @property
    def units(self):
        """Size of the machine, in units."""
        return self.machine.units(self.unit)

    @functools.cached_property
    def userids(self):
        """{user: user id}."""
        return userids([*self.jobs, *(job for job, _, _, _ in self.running)])

    def offered_load(self):
        """Return the area of all jobs relative to the machine's, from the first to the last
        submission, without jobs larger than the machine."""
        if len(self.jobs) < 2:
            return 0.0
        span = self.jobs[-1].submit - self.jobs[0].submit
        units = (self.usable or self.machine).units(self.unit)
        area = sum(job.size * job.seconds for job in self.jobs if job.size <= units)
        return area / (units * span) if span > 0 else math.inf


def build(options):
    """Read the traces, or run the model, and build a `Workload`; `Trace.workload` makes the options. Raises ValueError if
    an option or a trace is invalid; the text suggests a remedy."""
    for name in ("nodes", "cores_per_node", "jobs"):
        check_count(name, getattr(options, name))
    check_count("gpus_per_node", options.gpus_per_node, 0)
    check_count("seed", options.seed, -math.inf)
    if options.unit not in (None, "node", "core"):
        raise OptionError(f"unit {options.unit!r}: expected node or core")
    notes = Notes()
    if options.model:
        jobs, source = _modelled(options, notes)
        name = options.model
    else:
        jobs, source = _read(options, notes)
        name = ", ".join(path.rsplit("/", 1)[-1] for path in options.traces)
    if not jobs:
        raise ValueError(
            "no job is left to simulate" + "".join(f"\n  {line}" for line in notes.lines())
        )
    if not options.model:
        _in_order(jobs, notes)
    jobs = _cut(jobs, options, notes)
    failed = sum(job.status in (0, 5) for job in jobs)
    if failed and not options.status:
        notes.warn(
            f"{failed:,} of {len(jobs):,} jobs failed or were cancelled (status 0 or 5), and are included:"
            " many studies leave them out. --status=1,-1 leaves them out, --status=0,1,5,-1 includes them without this warning"
        )
    machine, unit = _machine(jobs, source, options, notes)
    usable = _usable(machine, options, notes)
    epoch = jobs[0].submit
    larger = _fit(jobs, machine, usable, unit, options, notes)
    _follow(jobs, options, notes)
    _look_at_users(jobs, notes)
    workload = Workload(jobs, machine, unit, epoch if epoch > 1e6 else 0.0, notes, name, usable)
    _warn(workload, larger)
    return workload


def _read(options, notes):
    jobs, first = [], None
    for path in options.traces:
        source = Source(path, notes, options.status)
        before = len(jobs)
        jobs += reader(source, options.format)
        if before and (jobs[0].submit < AGO) != (jobs[-1].submit < AGO):
            text = "its times are seconds since the epoch and those of the other traces are not, or the other"
            raise source.error(0, f"{text} way round: mixed kinds have no order")
        if options.status and not source.has_statuses:
            raise OptionError(
                f"status: {os.path.basename(path)} has no statuses: SWF has, a table with a column state, Flux's own records"
            )
        first = first or source
        for name in ("procs", "nodes"):
            most = max(getattr(first, name) or 0, getattr(source, name) or 0)
            setattr(first, name, most or None)
    return jobs, first


def _modelled(options, notes):
    name, _, text = str(options.model).partition(":")
    if name != "lublin":
        raise OptionError(f"model {name!r}: expected lublin")
    size = options.machine.nodes if options.machine else options.nodes or MODEL_NODES
    count = options.jobs or MODEL_JOBS
    rows = lublin.generate(text, count, size, options.seed)
    source = Source(options.model, notes)
    source.procs = source.nodes = size
    if options.estimates == "none" and options.limits == "trace":
        options.estimates = "tsafrir"
        notes.fact("the model has no limits: --estimates=tsafrir is used")
    jobs = [
        Job(str(number), submit, float(run), None, queue=kind, request=(size, None, 0))
        for number, (submit, run, size, kind) in enumerate(rows, 1)
    ]
    return jobs, source


def _in_order(jobs, notes):
    backwards = sum(1 for a, b in zip(jobs, jobs[1:]) if b.submit < a.submit)
    if backwards:
        text = "jobs come after a later one in the trace: sorted by submission"
        notes.count(text, None, backwards)
        jobs.sort(key=attrgetter("submit"))
    seen = {}
    for job in jobs:
        id, times = job.id, seen.get(job.id, 1)
        while job.id in seen:  # the trace may have a job "1#2" of its own
            times += 1
            job.id = f"{id}#{times}"
        seen[job.id] = 1
        if job.id != id:
            seen[id] = times
            notes.count("jobs have the number of another one: #2, #3, ... is appended")


def _cut(jobs, options, notes):
    count = len(jobs)
    if options.window is not None:
        low, high = _window(str(options.window), jobs[0].submit)
        jobs = [job for job in jobs if low <= job.submit < high]
        if len(jobs) < count:
            text = f"jobs left out: outside of the window {options.window}"
            notes.count(text, None, count - len(jobs))
        if not jobs:
            raise ValueError(f"no job is submitted in the window {options.window}")
    if options.jobs and len(jobs) > options.jobs:
        text = f"jobs left out: after the first {options.jobs:,}"
        notes.count(text, None, len(jobs) - options.jobs)
        jobs = jobs[: options.jobs]
    return jobs


def _window(text, first):
    """Parse ``DAYS``, ``FROM-TO`` (days after the first submission), or ``DATE/DATE`` to (from,
    to)."""
    try:
        if "/" in text:
            low, high = (moment(part) for part in text.split("/"))
        elif "-" in text.strip("-"):
            low, high = (first + 86400 * float(part) for part in text.split("-"))
        else:
            low, high = first, first + 86400 * float(text)
    except ValueError:
        raise OptionError(f"window {text!r}: expected DAYS, FROM-TO in days or DATE/DATE") from None
    if not low < high:
        raise OptionError(f"window {text!r}: it ends before it begins")
    return low, high


def _machine(jobs, source, options, notes):
    """Return the machine and the unit of sizes."""
    machine, unit = options.machine, options.unit
    by_nodes = all(job.request[0] for job in jobs)
    guessed = machine is None
    if guessed:
        machine = _guess(jobs, source, options, by_nodes)
    notes.fact(f"machine: {machine} ({machine.source})")
    sharing = next((job for job in jobs if _may_share(job)), None)
    if sharing is not None and machine.cores != machine.nodes:
        by_nodes = False
        if unit == "node":
            raise OptionError(f"unit node: job {sharing.id} shares nodes, by its jobspec")
    if unit is None:
        unit = "node" if machine.cores == machine.nodes or by_nodes else "core"
        what = "whole nodes" if unit == "node" else "cores, which may be anywhere"
        notes.fact(f"unit: {unit}: jobs get {what} (see --unit)")
        each = machine.cores_per_node if machine.is_uniform and unit == "node" else 0
        asked = (job.request for job in jobs)
        parts = sum(1 for nodes, cores, _ in asked if nodes and cores and cores < nodes * each)
        if parts > CUT * len(jobs):
            notes.warn(
                f"{parts:,} of {len(jobs):,} jobs have fewer cores than their nodes, of {each} cores each, and get whole"
                " nodes: --unit=core gives them cores"
            )
    if guessed and not options.nodes:
        _compare_with_starts(jobs, machine, unit, notes)
    return machine, unit


def _may_share(job):
    """Whether a job has a jobspec of its own that does not ask for whole nodes."""
    spec = (job.extra or {}).get("jobspec")
    return spec is not None and not all(
        one.get("type") == "node" and one.get("exclusive") for one in spec["resources"]
    )


#: Tolerated ratio of the trace's peak use to the machine. Times in whole seconds make successive
#: jobs overlap. On a machine given in the trace, jobs may have used parts of exclusive nodes.
ROUNDING = 1.05
NAMED = 1.5


def _compare_with_starts(jobs, machine, unit, notes):
    """Warn if the trace's own schedule exceeds the machine."""
    events = []
    for job in jobs:
        if job.wait is not None and job.run:
            size = _shape(job.request, machine, unit)[1]
            start = job.submit + job.wait
            events += [(start, size), (start + job.run, -size)]
    most = max(itertools.accumulate(change for _, change in sorted(events)), default=0)
    units = machine.units(unit)
    if most > units * (NAMED if "from the trace" in machine.source else ROUNDING):
        notes.warn(
            f"the machine has {counted(units, unit)} ({machine.source}), and by its own starts the trace used"
            f" {most:,} at once: the machine is too small, and all waits are too long. Give its size with"
            " --nodes (and --cores-per-node)"
        )


def _guess(jobs, source, options, by_nodes):
    per_node, gpus = options.cores_per_node, options.gpus_per_node
    procs, nodes = source.procs, source.nodes
    if options.nodes:
        nodes, origin = options.nodes, "as given"
    elif source.R is not None and not per_node and not gpus:
        try:
            return Machine(source.R, "resource.R of the trace")
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise source.error(0, f"resource/R: no resource set: {exc}") from None
    elif (procs or nodes) and per_node:
        nodes = math.ceil((procs or nodes) / per_node)
        origin = "size from the trace, cores per node as given"
    elif procs and nodes and procs % nodes == 0:
        per_node, origin = procs // nodes, "size from the trace"
    elif procs or nodes:
        nodes = procs or nodes
        origin = "size from the trace, each processor a node of its own"
    elif by_nodes:
        asked = [job.request for job in jobs]
        nodes = max(nodes for nodes, _, _ in asked)
        per_node = per_node or max(-(-(cores or 0) // nodes) for nodes, cores, _ in asked)
        gpus = gpus or max(-(-gpus // nodes) for nodes, _, gpus in asked)
        origin = "unknown: the size of the largest jobs; see --nodes"
    else:
        cores = max(cores or nodes for nodes, cores, _ in (job.request for job in jobs))
        nodes = math.ceil(cores / (per_node or 1))
        origin = "unknown: the size of the largest job; see --nodes"
    return uniform(nodes, per_node or 1, gpus, origin)


def _usable(machine, options, notes):
    """Return the machine without the nodes that the configuration excludes."""
    if options.exclude is None:
        return machine
    inventory = Inventory(machine.R)
    rest = inventory.without(targets(options.exclude, inventory, "resource.exclude: "))
    if not rest.ranks:
        raise ValueError(f"resource.exclude: {options.exclude} is all nodes of the machine")
    usable = Machine(rest.R, machine.source)
    notes.fact(f"without the nodes of resource.exclude: {usable}")
    return usable


def _fit(jobs, machine, usable, unit, options, notes):
    """Give jobs their shapes, limits and times on a machine. Return the number of jobs larger than
    the machine."""
    limit_of = _limits(jobs, options, notes)
    rng = random.Random(options.seed)
    epoch = jobs[0].submit
    scale, shake = options.scale_arrivals, options.shake
    if not isinstance(shake, numbers.Real) or not 0 <= shake < 1e9:
        raise OptionError(f"shake {shake!r}: expected seconds, 0 or more")
    if not isinstance(scale, numbers.Real) or not 0 < scale < math.inf:
        raise OptionError(f"scale-arrivals {scale!r}: expected a number above 0")
    if scale != 1:
        notes.fact(f"times between submissions are multiplied by {scale:g}")
    total = usable.units(unit)
    larger = 0
    for job in jobs:
        gpus = job.request[2]
        job.shape, job.size = _shape(job.request, machine, unit)
        job.request = None
        job.set_limit(_same(limit_of(job, rng)))
        if job.limit and job.run > job.limit:
            notes.count("jobs ran longer than their limit: they end at it")
        if job.size > total or gpus > usable.gpus > 0:
            larger += 1
        if gpus and not usable.gpus:
            notes.warn(
                "jobs ask for GPUs, and the machine has none: the scheduler will refuse them. Give its size with"
                " --nodes, --cores-per-node and --gpus-per-node"
            )
        submit = (job.submit - epoch) * scale
        if shake:
            submit += rng.uniform(0, shake)
        job.submit = in_microseconds(submit)
        if job.extra is not None:
            job.extra = _counted_memory(job, options)
            if "jobspec" in (job.extra or ()):
                job.shape = None
        job.id = printable(job.id)
        job.user, job.queue, job.group = _name(job.user), _name(job.queue), _name(job.group)
    if shake:
        jobs.sort(key=attrgetter("submit"))
    return larger


@functools.lru_cache(4096)
def _name(text):
    """Return a name of a trace in printable form, for tables, files and logs; one object for all of
    its jobs."""
    return text if text is None else printable(text)


def _warn(workload, larger):
    """Warn of a workload whose results would mislead; `larger` of its jobs exceed the machine."""
    jobs, notes = workload.jobs, workload.notes
    if not any(job.limit for job in jobs):
        notes.warn(
            "no job has a limit, so the ends of running jobs are unknown, and no start can be planned after them."
            " --estimates=tsafrir generates limits as users would choose, --limits=run takes the run time"
        )
    if larger:
        notes.warn(
            f"{larger:,} of {len(jobs):,} jobs request more than the machine has: the scheduler denies them, and they are"
            " in no figure"
        )
    cut = [job for job in jobs if job.limit and job.run > job.limit]
    area = math.fsum(job.size * job.run for job in jobs)
    lost = math.fsum(job.size * (job.run - job.limit) for job in cut)
    if len(cut) > CUT * len(jobs) or lost > CUT * area:
        notes.warn(
            f"{100 * len(cut) / len(jobs):.1f} % of the jobs are cut at their limits, and with them {100 * lost / area:.1f} %"
            " of the area: are the limits in seconds? --limits=run takes the run time"
        )
    load = round(workload.offered_load(), 2)  # as it is shown
    if 1 < load < math.inf:
        notes.warn(
            f"the offered load is {load:.2f}: more work is submitted than the machine can do, so waits grow with"
            " the length of the trace and mean little. --scale-arrivals or more --nodes reduce it"
        )
    times = [job.submit for job in jobs]
    span = times[-1] - times[0]
    # nights are not gaps
    gap, after = max(((b - a, a) for a, b in zip(times, times[1:])), default=(0.0, 0.0))
    if gap > max(span / 2, 86400.0):
        notes.warn(
            f"for {gap / 86400:.1f} of {span / 86400:.1f} days, from day {after / 86400:.1f} on, no job is submitted: utilization and"
            " load are means over a mostly idle machine. --window selects a part"
        )


def _follow(jobs, options, notes):
    """Let jobs follow others as in the trace: by the index of that job instead of its id."""
    following = [job for job in jobs if job.after]
    if options.dependencies and not following:
        notes.warn("no job of the trace follows another one: --dependencies changes nothing")
    if following and not options.dependencies:
        text = "jobs follow another job: they do not wait for it (--dependencies)"
        notes.count(text, None, len(following))
        for job in following:
            job.after = None
        return
    places = {job.id: index for index, job in enumerate(jobs)} if following else {}
    for job in following:
        former, think = job.after
        place = places.get(former)
        if place is None or place >= places[job.id]:
            # Outside the window or left out, or a later job, which cannot have been waited for.
            text = "jobs follow a job that is not there before them: they come in by the clock"
            notes.count(text)
            job.after = None
            continue
        job.after = (place, think)
        notes.count("jobs come in when the job they follow is over, and their user has thought")


def _look_at_users(jobs, notes):
    users = {job.user for job in jobs}
    if users == {None}:
        notes.fact("the trace names no users: all jobs are the instance owner's")
    elif len(users) == 1:
        notes.fact(f"all jobs are of one user ({users.pop()}): nothing is seen of fairness")
    else:
        groups = {job.group for job in jobs} - {None}
        more = f" in {len(groups):,} groups" if len(groups) > 1 else ""
        count = len(users - {None})
        notes.fact(f"{counted(count, 'user')}{more}")


def _limits(jobs, options, notes):
    """Return ``limit(job, rng)`` for the options."""
    text = str(options.limits)
    if text == "run":
        return lambda job, rng: max(job.run, 1.0)
    if text[:1] == "x":
        factor = float(text[1:]) if is_number(text[1:]) else 0.0
        if not 1 <= factor < 1e9:
            raise OptionError(f"limits {text!r}: expected xF with F at least 1")
        return lambda job, rng: max(job.run, 1.0) * factor
    if text != "trace":
        raise OptionError(f"limits {text!r}: expected trace, run or xF")
    estimate = None if options.estimates == "none" else estimator(str(options.estimates))
    made_up = f"jobs have no limit: one is made up (--estimates={options.estimates})"
    if estimate is not None and all(job.limit for job in jobs):
        notes.warn("every job of the trace has a limit: --estimates changes nothing")

    def limit(job, rng):
        if job.limit:
            return job.limit
        if estimate is None:
            notes.count("jobs have no limit: none is set (see --estimates)")
            return NO_LIMIT
        notes.count(made_up)
        return estimate(job.run, rng)

    return limit


#: Maximum memory of a slot in KiB; longer numbers are no amounts (`read_amount`), and no node has as much.
MOST_MEMORY = 10**15 - 1


def _counted_memory(job, options):
    """Return a job's extra attributes with memory per slot instead of per processor (KB); without
    memory if it is not counted, or if the job takes whole nodes."""
    extra = dict(job.extra)
    memory = extra.pop("memory", None)
    if memory is not None and options.memory and not job.shape.exclusive:
        extra["memory"] = {"per-slot": f"{min(memory * job.shape.cores, MOST_MEMORY)}K"}
    return extra or None


@functools.lru_cache(4096)
def _shape(request, machine, unit):
    """Return the shape of a job's request, (nodes, cores, GPUs), and its size in units."""
    nodes, cores, gpus = request
    per_node = machine.cores_per_node
    if unit == "node":
        nodes = nodes or math.ceil(cores / per_node)
        if per_node == 1 and not gpus:
            return Shape(nodes, 1), nodes
        gpus = min(-(-gpus // nodes), 1 << 20)
        return Shape(nodes, 1, per_node if machine.is_uniform else 1, gpus, True), nodes
    cores = cores or nodes * per_node
    if nodes and per_node > 1:
        each = -(-cores // nodes)
        return Shape(nodes, 1, each, -(-gpus // nodes)), each * nodes
    if gpus:
        slots = min(gpus, cores)
        each = -(-cores // slots)
        return Shape(0, slots, each, -(-gpus // slots)), each * slots
    if per_node == 1:
        return Shape(cores, 1), cores
    return Shape(0, cores), cores
