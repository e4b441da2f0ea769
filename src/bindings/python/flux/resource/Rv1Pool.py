"""The pool of R version 1 (RFC 20): allocation by worst fit.

How a pool is built, for those who write another one:

- ``pool/inventory.py``: the ranks and what each has, immutable and shared; *units*
  (cores and GPUs of a rank as one mask) and *selections* (which units of which
  ranks) are explained there;
- ``pool/rankindex.py``: what is free, indexed by how much is free;
- ``pool/placement.py``: the policy, ``place(index, shape, eligible)``: an index, what
  is asked for (a ``request.Shape``) and the mask of ranks that are up and match
  in, a selection and the number of slots out, or None.  It changes nothing.  Its
  ``pick()`` chooses the units on a rank, its ``best_fit`` the order of ranks;
- this module: the books (which job holds which selection, and until when), with
  ``pool/changes.py``: what the instance reports; ``pool/answers.py``: R and other
  answers; ``pool/hooks.py``: what a site may override; ``pool/check.py``: invariants;
- ``plan/plan.py``: what will be free when, with ``profile.py`` (running jobs),
  ``bookings.py`` (promises), ``search.py`` and ``choice.py``.

An implementation with another policy has another ``placement``, or overrides
``place()`` for what is more than that; where it can refuse what would fit by
count, ``check_shape()`` and ``countable()`` too.  The index that ``place()`` is
given may be the pool's, an empty one (feasibility) or that of a time to come
(planning), so it looks at nothing else that changes.  A site that wants to
reorder or choose among candidates overrides the hooks of ``pool/hooks.py``.
"""

from bisect import bisect_left, insort

from flux.resource.errors import InsufficientResources
from flux.resource.pool import explain
from flux.resource.pool.answers import Answers, job_text, number_of
from flux.resource.pool.changes import Changes
from flux.resource.pool.check import Check
from flux.resource.pool.hooks import Hooks
from flux.resource.pool.inventory import make_inventory, pairs, read_lite, read_names, select
from flux.resource.pool.masks import idset_text, quote
from flux.resource.pool.placement import WORST_FIT, slots_on
from flux.resource.pool.rankindex import RankIndex
from flux.resource.request import ResourceRequest, load_json
from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation

__all__ = ("ResourceRequest", "Rv1Pool")

#: Attributes made by ``_open()``, when a pool is first used as more than a set.
OPENED = frozenset(
    ("_inventory", "_index", "_up", "_jobs", "_order", "_gone", "_blocked", "_eligible")
)
#: Verdicts and masks that are remembered for shapes and constraints.
CACHE_LIMIT = 4096


class Rv1Pool(Hooks, Changes, Answers, Check, ResourcePoolImplementation):
    """A pool of ranks with cores and GPUs.

    Made from R, a pool has every rank up and free.  It is indexed when it is
    first used as more than a set: the pool of an allocation seldom is.

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
    #: Class of its index: a policy may keep more in it.
    index_class = RankIndex

    #: True for the pool of an allocation: what is local to the instance is not in its R.
    _granted = False
    #: What the pool of an allocation has of its ``_base``, until it is opened.
    _selection = None

    def __init__(self, R=None, log=None, **kwargs):
        if R is None:
            R = {"version": 1, "execution": {"R_lite": []}}
        if isinstance(R, (str, bytes)):
            R = load_json(R, "R")
        if not isinstance(R, dict):
            raise ValueError(f"R must be an object, got {quote(R)}")
        if R.get("version") != self.version or isinstance(R["version"], bool):
            raise ValueError(
                "R version {} not supported by {}".format(
                    quote(R.get("version")), type(self).__name__
                )
            )
        if log is not None:
            self.log = log
        entries = read_lite(R)
        self._read_from = (entries, *read_names(R, entries))
        execution = R["execution"]
        self.starttime = number_of(execution, "starttime")
        self._expiration = number_of(execution, "expiration")
        if 0 < self._expiration <= self.starttime:
            raise ValueError("R: execution.expiration must be after starttime")
        self.nslots = execution.get("nslots")
        if self.nslots is not None and (type(self.nslots) is not int or self.nslots < 1):
            raise ValueError(f"R: execution.nslots: expected a count, got {quote(self.nslots)}")
        self.scheduling = R.get("scheduling")

    def __getattr__(self, name):
        state = self.__dict__
        if name == "_base" and "_read_from" in state:
            self._base = make_inventory(*self._read_from)
            return self._base
        if name in OPENED and ("_base" in state or "_read_from" in state):
            self._open()
            return state[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def _open(self):
        """Index what has been a selection so far."""
        inventory = self._base
        if self._granted:
            inventory = inventory.part(self._selection)
        self._inventory = inventory
        self._index = self.index_class(inventory)
        self._up = inventory.ranks
        self._jobs = {}  # job id to (end, *selection); end in seconds, 0: none
        self._order = None  # ascending (end, job id) of the jobs that end, once asked for
        self._gone = 0  # mask of ranks removed
        self._blocked = set()  # shapes that do not fit until something is given back
        self._eligible = {}  # parsed constraint to mask of the ranks that match and are up

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

    def verdict(self, shape):
        """``check_shape()``, remembered with the inventory."""
        verdicts = self._inventory.verdicts
        key = (shape, self.placement)
        if key not in verdicts:
            if len(verdicts) >= CACHE_LIMIT:
                verdicts.clear()
            verdicts[key] = self.check_shape(shape)
        return verdicts[key]

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

    def waits_for_ranks(self, request):
        up = self.eligible(request.shape.match)
        return self.place_request(request, self._inventory.unused(), up) is None

    def eligible(self, match):
        """Mask of the ranks that are up and meet a parsed constraint."""
        if match is None:
            return self._up
        mask = self._eligible.get(match)
        if mask is None:
            if len(self._eligible) >= CACHE_LIMIT:
                self._eligible.clear()
            mask = self._eligible[match] = self._up & self._inventory.matching(match)
        return mask

    # -- allocations --------------------------------------------------------

    def alloc(self, jobid, request):
        if jobid in self._jobs:
            raise ValueError(f"job {job_text(jobid)} already has an allocation")
        shape = request.shape
        placed = None
        if shape not in self._blocked:
            placed = self.place_request(request, self._index, self.eligible(shape.match))
        if placed is None:
            self._refuse(request)
        return self.grant(jobid, request, *placed)

    def _refuse(self, request):
        """Raise why a request does not fit now."""
        self._check_feasibility(request)
        if not self.hooked:
            self._blocked.add(request.shape)
        raise InsufficientResources(lambda: self.why_not(request))

    def why_not(self, request):
        """Sentence for a request that does not fit now."""
        text = self.explain(request)["reason"]
        # Enough is free: then the policy of this pool will not have it.
        return text or f"insufficient resources: {self.name} finds no place on what is free"

    def grant(self, jobid, request, selection, nslots):
        """Book a selection that is free, and answer with it as a pool."""
        self._index.take(selection)
        if request.duration > 0:
            end = self.clock() + request.duration
        else:
            end = self._expiration
        self._book(jobid, end, selection)
        new = self._sibling()
        new._granted = True
        new._base = self._inventory
        new._selection = selection
        new.nslots = nslots
        new.starttime = new._expiration = 0.0
        new.scheduling = self.scheduling_of(selection)
        return new

    def scheduling_of(self, selection):
        """``R.scheduling`` of the allocation of a selection: here, the pool's."""
        return self.scheduling

    def free(self, jobid, R=None, final=False):
        record = self._jobs.get(jobid)
        if record is None:
            return
        held = record[1:]
        given, left = held, ()
        if R is not None:
            given, left = self._split(jobid, held, self._read(R))
            if final and left:
                self._mismatch(jobid, given, held)
        self._index.give(given)
        if R is None or final:
            del self._jobs[jobid]
            self._reorder(jobid, record[0], 0)
        else:
            self._jobs[jobid] = (record[0],) + left
        self._released()

    def register_alloc(self, jobid, R):
        if jobid in self._jobs:
            raise ValueError(f"job {job_text(jobid)} already has an allocation")
        inventory = self._inventory
        missing = 0
        groups = {}
        for mask, units in self._read(R):
            missing |= mask & ~inventory.ranks
            groups[units] = groups.get(units, 0) | mask
        if missing:
            raise ValueError(
                f"allocation contains ranks not in resource pool: [{idset_text(missing)}]"
            )
        selection = select(groups)
        if not self._index.is_free(selection):
            raise ValueError(
                f"job {job_text(jobid)}: {inventory.dumps(selection)} is not in the resource pool, or allocated to another job"
            )
        if isinstance(R, (str, bytes)):
            R = load_json(R, "R")
        if isinstance(R, dict):
            end = number_of(R["execution"], "expiration")
        else:
            end = float(getattr(R, "expiration", 0.0) or 0.0)
        self._index.take(selection)
        self._book(jobid, end, selection)

    # -- the books ----------------------------------------------------------

    def _book(self, jobid, end, selection):
        self._jobs[jobid] = (end,) + selection
        self._reorder(jobid, 0, end)
        self.generation += 1

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
            self._order = sorted([(one[0], jobid) for jobid, one in self._jobs.items() if one[0]])
        return self._order[:]

    def held(self, jobid):
        """The selection that a job holds."""
        return self._jobs[jobid][1:]

    def end_of(self, jobid):
        """When a job ends, in seconds since the epoch; 0: not known."""
        return self._jobs[jobid][0]

    def _released(self):
        """Something was given back or changed: what did not fit may fit."""
        self.generation += 1
        self.releases += 1
        if self._blocked:
            self._blocked.clear()

    def _read(self, R):
        """R in any form as a list of ``(rank mask, units)``; of a core that no rank
        here has, a ValueError."""
        shift = self._inventory.shift
        impl = getattr(R, "impl", R)
        if isinstance(impl, Answers):
            entries = impl.entries()
        else:
            if hasattr(R, "to_dict"):
                R = R.to_dict()
            elif isinstance(R, (str, bytes)):
                R = load_json(R, "R")
            if not isinstance(R, dict):
                raise ValueError(f"R must be an object, got {quote(R)}")
            entries = read_lite(R)
        for ranks, cores, _ in entries:
            if cores >> shift:
                raise ValueError(
                    "rank %s has no core %d" % (idset_text(ranks), cores.bit_length() - 1)
                )
        return [(ranks, cores | gpus << shift) for ranks, cores, gpus in entries if cores or gpus]

    def _split(self, jobid, held, entries):
        """Divide what a job holds into the part that entries name, and the rest."""
        kept = {}
        for mask, units in pairs(held):
            kept[units] = kept.get(units, 0) | mask
        given = {}
        strange = 0
        here = ~self._gone | self._inventory.ranks
        for mask, units in entries:
            mask &= here  # what left the pool is forgotten
            for own in list(kept):
                common = kept[own] & mask
                if not common:
                    continue
                if units & ~own:
                    self._mismatch(jobid, select({units: common}), select({own: common}))
                mask ^= common
                kept[own] ^= common
                given[units] = given.get(units, 0) | common
                if own != units:
                    kept[own ^ units] = kept.get(own ^ units, 0) | common
            strange |= mask
        if strange:
            raise ValueError(
                f"free: {job_text(jobid)}: R contains ranks not in job allocation: {{{idset_text(strange)}}}"
            )
        return select(given), select(kept)

    def _mismatch(self, jobid, got, expected):
        dumps = self._inventory.dumps
        raise ValueError(
            f"free: {job_text(jobid)}: R mismatch: got {dumps(got)}, expected {dumps(expected)}"
        )
