"""What a pool answers: R and its short form, copies, and what is to come."""

import math

from flux.resource.plan.plan import Plan
from flux.resource.pool import explain
from flux.resource.pool.inventory import pairs, select, selected_ranks
from flux.resource.pool.masks import idset_text, quote
from flux.resource.ResourcePoolImplementation import NO_LOG

_F58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

#: Attributes that a copy or an allocation does not get from the pool it is made of.
OWN = (
    "_inventory", "_index", "_up", "_jobs", "_order", "_gone", "_blocked", "_eligible",
    "generation", "releases", "_shared_plan",
)  # fmt: skip


class Answers:
    """Part of ``Rv1Pool``; the methods are those of ``ResourcePool``."""

    _shared_plan = None

    def _set(self):
        """All that is in the pool: an inventory, and a selection of it."""
        inventory = self.__dict__.get("_inventory")
        if inventory is not None:
            return inventory, inventory.whole()
        if self._granted:
            return self._base, self._selection
        return self._base, self._base.whole()

    def entries(self):
        """All that is in the pool, as a list of ``(rank mask, core mask, GPU mask)``."""
        if "_base" not in self.__dict__:
            return self._read_from[0]
        base, selection = self._set()
        return [
            (mask, units & base.core_mask, units >> base.shift) for mask, units in pairs(selection)
        ]

    @property
    def expiration(self):
        return self._expiration

    def job_end_times(self):
        return [(jobid, record[0]) for jobid, record in self._jobs.items()]

    def _sibling(self):
        """A new object of the class, with the attributes that are not the books'."""
        new = type(self).__new__(type(self))
        state = self.__dict__.copy()
        for name in OWN:
            state.pop(name, None)
        new.__dict__ = state
        return new

    def copy(self):
        new = self._sibling()
        new.log = NO_LOG
        new.generation = self.generation
        new.releases = self.releases
        if "_inventory" in self.__dict__:
            new._inventory = self._inventory
            new._index = self._index.copy()
            new._up = self._up
            new._jobs = self._jobs.copy()
            new._order = None
            new._gone = self._gone
            new._blocked = self._blocked.copy()
            new._eligible = self._eligible.copy()
        return new

    def to_dict(self):
        base, selection = self._set()
        R = self._execution(base, selection)
        execution = R["execution"]
        if self.nslots is not None:
            execution["nslots"] = self.nslots
        if base.hosts.named or self._granted:
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
                if mask & ranks and not (self._granted and name[:1] == "+")
            }
            if properties:
                execution["properties"] = properties
        return {"version": 1, "execution": execution}

    def dumps(self):
        base, selection = self._set()
        return base.dumps(selection)

    def to_resource_set(self):
        return _resource_set(self.to_dict())

    def copy_allocated(self):
        index = self._index
        full = self._inventory.full
        groups = {units: mask & ~index.idle for units, mask in self._inventory.kinds.items()}
        for rank, free in enumerate(index.partial):
            if free:
                groups[full[rank]] ^= 1 << rank
                taken = full[rank] ^ free
                groups[taken] = groups.get(taken, 0) | 1 << rank
        return self._part_set(select(groups))

    def copy_down(self):
        down = self._inventory.ranks & ~self._up
        return self._part_set(
            select({units: mask & down for units, mask in self._inventory.kinds.items()})
        )

    def _part_set(self, selection):
        R = self._execution(self._inventory, selection)
        R["execution"]["starttime"] = R["execution"]["expiration"] = 0.0
        return _resource_set(R)

    # -- looking ahead ------------------------------------------------------

    def explain(self, request):
        return explain.explain(self, request)

    def plan(self):
        """A new Plan, without reservations."""
        return Plan(self)

    def earliest(self, request, after=None):
        return self._own_plan().earliest(request, after)

    def windows(self, shapes, horizon):
        """See ``Plan.windows()``."""
        return self._own_plan().windows(shapes, horizon)

    def _own_plan(self):
        """The pool's own plan, in which nothing is ever reserved."""
        if self._shared_plan is None:
            self._shared_plan = Plan(self)
        return self._shared_plan


def _resource_set(R):
    # Not at the top: the host's module imports names of this package.
    from flux.resource.ResourceSet import ResourceSet

    return ResourceSet(R) if R["execution"]["R_lite"] else ResourceSet()


def number_of(execution, name):
    """A time of R in seconds; 0 if it is not there.

    Raises:
        ValueError: not a time.
    """
    value = execution.get(name)
    return 0.0 if value is None else number(value, f"R: execution.{name}")


def number(value, name):
    """A time in seconds since the epoch as a float, or ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name}: expected seconds, got {quote(value)}")
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name}: expected seconds since the epoch, got {value}")
    return value


def job_text(jobid):
    """A job id as Flux prints it (F58, RFC 19), or as it is if it is not one."""
    if not isinstance(jobid, int) or jobid < 0:
        return quote(jobid)
    value = int(jobid)
    text = ""
    while value or not text:
        value, digit = divmod(value, 58)
        text = _F58[digit] + text
    return "\u0192" + text
