"""The pool of R version 1 (RFC 20): allocation by worst fit.

How a pool is built, for those who write another one:

- ``inventory.py``: the ranks and what each has, immutable and shared; *units*
  (cores and GPUs of a rank as one mask) and *selections* (which units of which
  ranks) are explained there;
- ``rankindex.py``: what is free, indexed by how much is free;
- ``placement.py``: the policy, ``place(index, shape, eligible)``: an index, what
  is asked for (a ``request.Shape``) and the mask of ranks that are up and match
  in, a selection and the number of slots out, or None.  It changes nothing.  Its
  ``pick()`` chooses the units on a rank, its ``best_fit`` the order of ranks;
- this module: the books (which job holds which selection, and until when), and
  R in and out.

An implementation with another policy has another ``placement``, or overrides
``place()`` for what is more than that; where it can refuse what would fit by
count, ``check_shape()`` and ``countable()`` too.  The index it is
given may be the pool's, an empty one (feasibility) or that of a time to come
(planning), so ``place()`` looks at nothing else that changes.  A site that
wants to reorder or choose among candidates overrides the hooks of ``hooks.py``.
"""

import math
from bisect import bisect_left, insort

from flux.resource import explain, hooks
from flux.resource.errors import InsufficientResources
from flux.resource.inventory import (
    pairs,
    read_inventory,
    read_lite,
    select,
    selected_ranks,
)
from flux.resource.masks import idset_text, members, quote, to_mask
from flux.resource.placement import WORST_FIT, slots_on
from flux.resource.planning import Plan
from flux.resource.rankindex import RankIndex
from flux.resource.request import ResourceRequest, load_json
from flux.resource.ResourcePoolImplementation import NO_LOG, ResourcePoolImplementation

__all__ = ("Rv1Pool", "ResourceRequest")

#: Attributes made by ``_open()``, when a pool is first used as more than a set.
_OPENED = frozenset(
    ("_inventory", "_index", "_up", "_held", "_ends", "_order", "_gone", "_blocked", "_eligible")
)


class Rv1Pool(hooks.Hooks, ResourcePoolImplementation):
    """A pool of ranks with cores and GPUs.

    Made from R, a pool has every rank up and free.  The pool of an allocation,
    and of R just read, is only a selection until more is asked of it.

    Args:
        R (dict, str): R object or its JSON text.
        log: logger; none if not given.
        kwargs: options of ``known_options``; there are none.

    Raises:
        ValueError: R is not version 1, or has something wrong in it; the text
            names it.
    """

    version = 1
    name = "Rv1Pool"
    request_class = ResourceRequest
    placement = WORST_FIT

    def __init__(self, R=None, log=None, **kwargs):
        if R is None:
            R = {"version": 1, "execution": {"R_lite": []}}
        if isinstance(R, (str, bytes)):
            R = load_json(R, "R")
        if not isinstance(R, dict):
            raise ValueError("R must be an object, got %s" % quote(R))
        if R.get("version") != self.version or isinstance(R["version"], bool):
            raise ValueError(
                "R version %s not supported by %s" % (quote(R.get("version")), type(self).__name__)
            )
        if log is not None:
            self.log = log
        entries = read_lite(R)
        self._base = read_inventory(R, entries)
        self._selection = self._base.whole()
        execution = R["execution"]
        self.starttime = _seconds(execution, "starttime")
        self._expiration = _seconds(execution, "expiration")
        if 0 < self._expiration <= self.starttime:
            raise ValueError("R: execution.expiration must be after starttime")
        self.nslots = execution.get("nslots")
        self.scheduling = R.get("scheduling")

    def __getattr__(self, name):
        if name in _OPENED and "_base" in self.__dict__:
            self._open()
            return self.__dict__[name]
        raise AttributeError("%s has no attribute %r" % (type(self).__name__, name))

    def _open(self):
        """Index what has been a selection so far."""
        inventory = self._base
        selection = self._selection
        if selection != inventory.whole():
            inventory = inventory.part(selection)
        self._inventory = inventory
        self._selection = None
        self._index = RankIndex(inventory)
        self._up = inventory.ranks
        self._held = {}  # job id to selection
        self._ends = {}  # job id to end, seconds since the epoch; 0: none
        self._gone = 0  # mask of ranks removed
        self._blocked = set()  # shapes that do not fit until something is given back
        self._eligible = {}  # parsed constraint to mask of the ranks that match and are up
        self._order = None  # ascending (end, job id) of the jobs that end, once asked for

    # -- requests -----------------------------------------------------------

    def parse_resource_request(self, jobspec):
        return self.request_class.from_jobspec(jobspec)

    def check_feasibility(self, request):
        self._check_feasibility(request)

    def place(self, index, shape, eligible):
        """Find resources for a shape; see ``Placement.place()``."""
        return self.placement.place(index, shape, eligible)

    def place_request(self, request, index, eligible):
        """Find resources for a request by ``place()``, or by the hooks if overridden."""
        if self.hooked:
            return self.place_by_hooks(request, index, eligible)
        return self.place(index, request.shape, eligible)

    def countable(self, shape):
        """True if a shape fits wherever the counts of free cores and GPUs suffice.

        Planning may then reckon with counts alone. Where ``place()`` has other
        reasons to refuse, planning simulates it, which is slower.
        """
        return not self.hooked

    def check_shape(self, shape):
        """Why a shape could not be placed if every rank were up and free.

        Returns:
            One sentence, or None if it could be placed.
        """
        inventory = self._inventory
        if self.place(inventory.unused(), shape, inventory.matching(shape.match)) is None:
            return explain.infeasible(inventory, shape)
        return None

    def _infeasible(self, shape):
        """``check_shape()``, remembered by the inventory."""
        verdicts = self._inventory.verdicts
        place_key = (shape, type(self))
        if place_key not in verdicts:
            if len(verdicts) > 4096:
                verdicts.clear()
            verdicts[place_key] = self.check_shape(shape)
        return verdicts[place_key]

    def match_mask(self, request):
        shape = request.shape
        inventory = self._inventory
        mask = 0
        for units, ranks in inventory.kinds.items():
            cores, gpus = divmod(inventory.keys[units], inventory.key_base)
            if shape.node_count is not None:
                if cores >= shape.node_cores and gpus >= shape.node_gpus:
                    mask |= ranks
            elif slots_on(cores, gpus, shape):
                mask |= ranks
        return mask & inventory.matching(shape.match)

    # -- allocations --------------------------------------------------------

    def eligible(self, match):
        """Mask of the ranks that are up and meet a parsed constraint."""
        if match is None:
            return self._up
        mask = self._eligible.get(match)
        if mask is None:
            if len(self._eligible) > 4096:
                self._eligible.clear()
            mask = self._eligible[match] = self._up & self._inventory.matching(match)
        return mask

    def alloc(self, jobid, request):
        if jobid in self._held:
            raise ValueError("job %s already has an allocation" % job_text(jobid))
        shape = request.shape
        placed = None
        if shape not in self._blocked:
            placed = self.place_request(request, self._index, self.eligible(shape.match))
        if placed is None:
            self._refuse(request)
        return self._grant(jobid, request, *placed)

    def _refuse(self, request):
        """Raise why a request does not fit now."""
        self._check_feasibility(request)
        if not self.hooked:
            self._blocked.add(request.shape)
        raise InsufficientResources(lambda: self.explain(request)["reason"])

    def _grant(self, jobid, request, selection, nslots):
        """Book a selection that is free, and answer with it as a pool."""
        self._index.take(selection)
        if request.duration > 0:
            end = self.clock() + request.duration
        else:
            end = self._expiration
        self._book(jobid, selection, end)
        return self._answer(selection, nslots)

    def _book(self, jobid, selection, end):
        self._held[jobid] = selection
        self._ends[jobid] = end
        if self._order is not None and end:
            insort(self._order, (end, jobid))
        self.generation += 1

    def _unbook(self, jobid):
        del self._held[jobid]
        self._reorder(jobid, self._ends.pop(jobid), 0)

    def _reorder(self, jobid, old, new):
        """Keep the order of ends when that of a job changes; 0 is none."""
        if self._order is not None:
            if old:
                del self._order[bisect_left(self._order, (old, jobid))]
            if new:
                insort(self._order, (new, jobid))

    def ends_in_order(self):
        """List of ``(end, jobid)``, ascending, of the jobs that end."""
        if self._order is None:
            self._order = sorted([(end, jobid) for jobid, end in self._ends.items() if end])
        return self._order[:]

    def _released(self):
        """Something was given back or changed: what did not fit may fit."""
        self.generation += 1
        self.releases += 1
        if self._blocked:
            self._blocked.clear()

    def _answer(self, selection, nslots):
        """A pool of the same class that is just a selection of this one."""
        new = self._sibling()
        new._base = self._inventory
        new._selection = selection
        new.nslots = nslots
        new.starttime = new._expiration = 0.0
        new.scheduling = self.scheduling_of(selection)
        return new

    def _sibling(self):
        """A new object with the attributes that are not the books'."""
        new = type(self).__new__(type(self))
        state = self.__dict__.copy()
        for name in _OPENED:
            state.pop(name, None)
        for name in ("generation", "releases", "_own_plan"):
            state.pop(name, None)
        new.__dict__ = state
        return new

    def scheduling_of(self, selection):
        """``R.scheduling`` of the allocation of a selection: here, the pool's."""
        return self.scheduling

    def free(self, jobid, R=None, final=False):
        held = self._held.get(jobid)
        if held is None:
            return
        if R is None:
            given, left = held, ()
        else:
            given, left = self._split(jobid, held, self._read(R))
            if final and left:
                raise ValueError(
                    "free: %s: final R mismatch: got %s, expected %s"
                    % (job_text(jobid), self._inventory.dumps(given), self._inventory.dumps(held))
                )
        self._index.give(given)
        if R is None or final:
            self._unbook(jobid)
        else:
            self._held[jobid] = left
        self._released()

    def _read(self, R):
        """Entries ``(rank mask, units)`` of R in any form; of a rank or unit that
        never was in the pool, a ValueError."""
        base = self._inventory
        impl = getattr(R, "impl", R)
        if isinstance(impl, Rv1Pool):
            if impl._base.shift == base.shift:
                return list(pairs(impl.selection()))
            entries = impl.entries()
        else:
            if hasattr(R, "to_dict"):
                R = R.to_dict()
            elif isinstance(R, (str, bytes)):
                R = load_json(R, "R")
            if not isinstance(R, dict):
                raise ValueError("R must be an object, got %s" % quote(R))
            entries = read_lite(R)
        for ranks, cores, _ in entries:
            if cores >> base.shift:
                raise ValueError(
                    "rank %s has no core %d" % (idset_text(ranks), cores.bit_length() - 1)
                )
        return [(ranks, cores | gpus << base.shift) for ranks, cores, gpus in entries]

    def selection(self):
        """Everything in the pool as a selection (units of its inventory)."""
        if self._selection is not None:
            return self._selection
        return self._inventory.whole()

    def entries(self):
        """Everything in the pool as ``(rank mask, core mask, GPU mask)``."""
        base = self._base if self._selection is not None else self._inventory
        return [
            (mask, units & base.core_mask, units >> base.shift)
            for mask, units in pairs(self.selection())
        ]

    def _split(self, jobid, held, entries):
        """Divide what a job holds into the part that entries name, and the rest."""
        kept = dict(_by_units(held))
        given = {}
        strange = 0
        for mask, units in entries:
            mask &= ~self._gone | self._inventory.ranks
            for own in list(kept):
                common = kept[own] & mask
                if not common:
                    continue
                if units & ~own:
                    raise ValueError(
                        "free: %s: final R mismatch: got %s, expected %s"
                        % (
                            job_text(jobid),
                            self._inventory.dumps(select({units: common})),
                            self._inventory.dumps(select({own: common})),
                        )
                    )
                mask ^= common
                kept[own] ^= common
                given[units] = given.get(units, 0) | common
                if own != units:
                    rest = own ^ units
                    kept[rest] = kept.get(rest, 0) | common
            strange |= mask
        if strange:
            raise ValueError(
                "free: %s: R contains ranks not in job allocation: {%s}"
                % (job_text(jobid), idset_text(strange))
            )
        return select(given), select(kept)

    def register_alloc(self, jobid, R):
        if jobid in self._held:
            raise ValueError("job %s already has an allocation" % job_text(jobid))
        inventory = self._inventory
        entries = self._read(R)
        missing = 0
        groups = {}
        for mask, units in entries:
            missing |= mask & ~inventory.ranks
            groups[units] = groups.get(units, 0) | mask
        if missing:
            raise ValueError(
                "allocation contains ranks not in resource pool: [%s]" % idset_text(missing)
            )
        selection = select(groups)
        if not self._index.is_free(selection):
            raise ValueError(
                "job %s: %s is not in the resource pool or allocated to another job"
                % (job_text(jobid), inventory.dumps(selection))
            )
        self._index.take(selection)
        if isinstance(R, dict):
            end = _seconds(R["execution"], "expiration")
        else:
            end = float(getattr(R, "expiration", 0.0) or 0.0)
        self._book(jobid, selection, end)

    # -- changes ------------------------------------------------------------

    def _ranks(self, ids):
        if ids == "all":
            return self._inventory.ranks
        return to_mask(ids, self._inventory.ranks.bit_length()) & self._inventory.ranks

    def mark_up(self, ids):
        self._set_up(self._up | self._ranks(ids))

    def mark_down(self, ids):
        self._set_up(self._up & ~self._ranks(ids))

    def _set_up(self, up):
        if up != self._up:
            self._up = up
            self._eligible.clear()
            self._released()

    def remove_ranks(self, ranks):
        ranks = self._ranks(ranks)
        if not ranks:
            return
        self._gone |= ranks
        self._inventory = self._inventory.without(ranks)
        self._index.drop(ranks, self._inventory)
        self._up &= ~ranks
        for jobid, selection in self._held.items():
            if selected_ranks(selection) & ranks:
                groups = {}
                for mask, units in pairs(selection):
                    groups[units] = groups.get(units, 0) | mask & ~ranks
                self._held[jobid] = select(groups)
        self._inventory_changed()

    def _inventory_changed(self):
        self._eligible.clear()
        self._released()

    def add_property(self, name, ranks):
        old = self._inventory.properties.get(name, 0)
        self._set_property(name, old, old | self._ranks(ranks))

    def remove_property(self, name, ranks):
        old = self._inventory.properties.get(name, 0)
        self._set_property(name, old, old & ~self._ranks(ranks))

    def _set_property(self, name, old, new):
        if old != new:
            self._inventory = self._inventory.with_property(name, new)
            self._index.inventory = self._inventory
            self._inventory_changed()

    @property
    def expiration(self):
        return self._expiration

    def set_expiration(self, expiration):
        self._expiration = _number(expiration, "expiration")

    def set_starttime(self, starttime):
        self.starttime = _number(starttime, "starttime")

    def update_expiration(self, jobid, expiration):
        if jobid in self._ends:
            end = _number(expiration, "expiration")
            self._reorder(jobid, self._ends[jobid], end)
            self._ends[jobid] = end
            self.generation += 1

    # -- answers ------------------------------------------------------------

    def job_end_times(self):
        return list(self._ends.items())

    def copy(self):
        new = self._sibling()
        new.log = NO_LOG
        new.generation = self.generation
        new.releases = self.releases
        if self._selection is None:
            new._inventory = self._inventory
            new._index = self._index.copy()
            new._up = self._up
            new._held = self._held.copy()
            new._ends = self._ends.copy()
            new._gone = self._gone
            new._blocked = self._blocked.copy()
            new._eligible = self._eligible.copy()
            new._order = None
        return new

    def to_dict(self):
        base = self._base if self._selection is not None else self._inventory
        selection = self.selection()
        R = self._execution(base, selection)
        execution = R["execution"]
        if self.nslots is not None:
            execution["nslots"] = self.nslots
        if base.hosts.named or self._selection is not None and self._base is not None:
            execution["nodelist"] = [base.hosts.hostlist(selected_ranks(selection))]
        if self.scheduling is not None:
            R["scheduling"] = self.scheduling
        return R

    def _execution(self, base, selection):
        execution = {
            "R_lite": base.lite(selection),
            "starttime": self.starttime,
            "expiration": self._expiration,
        }
        if base.properties:
            ranks = selected_ranks(selection)
            properties = {
                name: idset_text(mask & ranks)
                for name, mask in sorted(base.properties.items())
                if mask & ranks
            }
            if properties:
                execution["properties"] = properties
        return {"version": 1, "execution": execution}

    def dumps(self):
        base = self._base if self._selection is not None else self._inventory
        return base.dumps(self.selection())

    def to_resource_set(self):
        return _resource_set(self.to_dict())

    def copy_allocated(self):
        """Everything that jobs hold, as a ResourceSet."""
        groups = {}
        index = self._index
        full = self._inventory.full
        for units, mask in self._inventory.kinds.items():
            groups[units] = mask & ~index.idle
        for rank, free in index.partial.items():
            bit = 1 << rank
            groups[full[rank]] ^= bit
            taken = full[rank] ^ free
            groups[taken] = groups.get(taken, 0) | bit
        return self._part_set(select(groups))

    def copy_down(self):
        """Everything on ranks that are down, as a ResourceSet."""
        down = self._inventory.ranks & ~self._up
        return self._part_set(
            select({units: mask & down for units, mask in self._inventory.kinds.items()})
        )

    def _part_set(self, selection):
        R = self._execution(self._inventory, selection)
        R["execution"]["starttime"] = R["execution"]["expiration"] = 0.0
        return _resource_set(R)

    def explain(self, request):
        return explain.explain(self, request)

    def plan(self):
        """A :class:`~flux.resource.planning.Plan` from now on, without reservations."""
        return Plan(self)

    def earliest(self, request, after=None):
        """First time at which a request fits, as running jobs end, or None."""
        return self._shared_plan().earliest(request, after)

    def windows(self, shapes, horizon):
        """What could start now and for how long; see ``Plan.windows()``."""
        return self._shared_plan().windows(shapes, horizon)

    def _shared_plan(self):
        """The pool's own plan, in which nothing is ever reserved."""
        plan = self.__dict__.get("_own_plan")
        if plan is None:
            plan = self._own_plan = Plan(self)
        return plan

    # -- checks -------------------------------------------------------------

    def _check(self):
        """Check every invariant; AssertionError with the pool's state if one is broken."""
        try:
            self._check_books()
        except AssertionError as exc:
            raise AssertionError("%s\n%s" % (exc, self._state())) from None

    def _check_books(self):
        inventory, index = self._inventory, self._index
        index.check()
        assert index.inventory is inventory, "the index is of another inventory"
        assert not self._up & ~inventory.ranks, "ranks are up that are not there"
        assert not self._gone & inventory.ranks, "ranks are both there and gone"
        assert set(self._held) == set(self._ends), "held and end times differ"
        if self._order is not None:
            ends = sorted([(end, jobid) for jobid, end in self._ends.items() if end])
            assert self._order == ends, "order of ends is %r" % (self._order,)
        taken = {}
        for jobid, selection in self._held.items():
            for mask, units in pairs(selection):
                for rank in members(mask):
                    assert not taken.get(rank, 0) & units, "rank %d given twice" % rank
                    taken[rank] = taken.get(rank, 0) | units
        for rank in members(inventory.ranks):
            free = index.free(rank)
            assert free ^ taken.pop(rank, 0) == inventory.full[rank], (
                "rank %d: free and held are not all of it" % rank
            )
        assert not taken, "jobs hold ranks that are not there: %s" % sorted(taken)
        for match, mask in self._eligible.items():
            assert mask == self._up & inventory.matching(match), "stale constraint %r" % (match,)

    def _state(self):
        dumps = self._inventory.dumps
        lines = ["pool: %s up: %s" % (dumps(self._inventory.whole()), idset_text(self._up))]
        for jobid, selection in self._held.items():
            lines.append("job %s: %s end %s" % (jobid, dumps(selection), self._ends.get(jobid)))
        lines.append("partial: %s" % {r: bin(u) for r, u in self._index.partial.items()})
        lines.append("idle: %s" % idset_text(self._index.idle))
        return "\n".join(lines)


def _by_units(selection):
    groups = {}
    for mask, units in pairs(selection):
        groups[units] = groups.get(units, 0) | mask
    return groups


def _resource_set(R):
    from flux.resource.ResourceSet import ResourceSet

    return ResourceSet(R)


def _seconds(execution, name):
    value = execution.get(name)
    if value is None:
        return 0.0
    try:
        return _number(value, "execution.%s" % name)
    except ValueError as exc:
        raise ValueError("R: %s" % exc) from None


def _number(value, name):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("%s: expected seconds, got %s" % (name, quote(value)))
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or value < 0:
        raise ValueError("%s: expected seconds since the epoch, got %s" % (name, value))
    return value


def job_text(jobid):
    """A job id as Flux prints it (F58), or as it is if it is not one."""
    try:
        value = int(jobid)
    except (TypeError, ValueError):
        return quote(jobid)
    if value < 0:
        return str(value)
    digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    text = ""
    while value or not text:
        value, digit = divmod(value, 58)
        text = digits[digit] + text
    return "\u0192" + text
