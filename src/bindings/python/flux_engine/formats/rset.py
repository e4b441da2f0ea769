# SPDX-License-Identifier: LGPL-3.0-or-later
"""Sets of resources: R version 1 (RFC 20), read, cut, combined and written.

`RSet` is the one model of R. The functions below it return one fact each from the R of a job. They
read the parsed JSON, since building an RSet would cost more.
"""

from flux.resource.pool.constraint import ILLEGAL_IN_PROPERTIES
from flux.resource.pool.masks import RANK_LIMIT, members, parse_idset, popcount
from flux_engine.formats import form, hostlist, idset

#: Keys of ``execution`` that describe resources, not times.
_RESOURCES = ("R_lite", "nodelist", "properties")


def _version(value):
    if type(value) is not int or value != 1:
        raise ValueError(f"expected 1, got {value!r}")


def _time(value):
    form.check(value, float, "seconds since the epoch")
    if not 0 <= value < 1e18:
        raise ValueError(f"expected seconds since the epoch, got {value!r}")


_FORM = {
    "version": _version,
    "execution": {
        "R_lite": [{"rank": str, "children": dict}],
        "nodelist?": [str],
        "properties?": dict,
        "starttime?": _time,
        "expiration?": _time,
    },
}


class RSet:
    """Ranks, and the resources of each.

    Args:
        R (dict): R as an object, None for an empty set
        lenient (bool): accept an R with too few hosts, or too many, or with properties of any name
            and of ranks that it does not have

    Attributes:
        have: rank -> its resources, ``((type, bounds), ...)`` as `kinds` makes it; ranks that are
            alike share the object
        hosts: rank -> host name, empty where R has no nodelist
        properties: name -> set of ranks, in order of appearance
        starttime, expiration (float): seconds since the epoch, 0 for none
        nslots (int): of an allocation, else None
        scheduling: the opaque key, None without

    Raises:
        ValueError: the first problem found, with its path
    """

    def __init__(self, R=None, lenient=False):
        self.have = {}
        self.hosts = {}
        self.properties = {}
        self.starttime = 0.0
        self.expiration = 0.0
        self.nslots = None
        self.scheduling = None
        if R is not None:
            self._read(R, lenient)

    @classmethod
    def from_ranks(cls, have, hosts, properties=()):
        """A set of these ranks, {rank: kinds}, with {rank: host} and {property: ranks}."""
        result = cls()
        result.have = have
        result.hosts = hosts
        result.properties = {name: set(ranks) for name, ranks in dict(properties).items()}
        return result

    # -- R in ------------------------------------------------------------------------------------

    def _read(self, R, lenient):
        form.check(R, _FORM, "R")
        execution = R["execution"]
        for i, entry in enumerate(execution["R_lite"]):
            self._read_entry(entry, f"R.execution.R_lite[{i}]")
        if "nodelist" in execution:
            self._read_nodelist(execution["nodelist"], lenient)
        for name, text in execution.get("properties", {}).items():
            self._read_property(name, text, lenient)
        self.starttime = float(execution.get("starttime", 0))
        self.expiration = float(execution.get("expiration", 0))
        if self.starttime and self.expiration and self.expiration <= self.starttime:
            raise ValueError("R.execution.expiration: not after starttime")
        self.nslots = execution.get("nslots")
        self.scheduling = R.get("scheduling")

    def _read_entry(self, entry, where):
        bounds = _decode(entry["rank"], f"{where}.rank")
        if not bounds:
            raise ValueError(f"{where}.rank: empty")
        if bounds[-1] > RANK_LIMIT:
            raise ValueError(f"{where}.rank: ranks must be below {RANK_LIMIT}")
        children = entry["children"]
        have = {kind: _decode(children[kind], f"{where}.children.{kind}") for kind in children}
        self._add(dict.fromkeys(idset.members(bounds), kinds(have)))

    def _read_nodelist(self, nodelist, lenient):
        try:
            names = [name for text in nodelist for name in hostlist.decode(text)]
        except ValueError as exc:
            raise ValueError(f"R.execution.nodelist: {exc}") from None
        if len(names) != len(self.have) and not lenient:
            raise ValueError(f"R.execution.nodelist: {len(names)} hosts for {len(self.have)} ranks")
        self.hosts = dict(zip(sorted(self.have), names))
        for rank in self.have.keys() - self.hosts.keys():
            self.hosts[rank] = f"rank{rank}"

    def _read_property(self, name, text, lenient):
        where = f"R.execution.properties.{name}"
        if not lenient:
            check_property(name)
        bounds = _decode(text, where)
        here = self.members(bounds)
        if len(here) != idset.count(bounds) and not lenient:
            missing = idset.difference(bounds, idset.from_ids(self.have))
            raise ValueError(f"{where}: rank {idset.encode(missing)} is not in R_lite")
        if here:
            self.properties[name] = here

    # -- R out -----------------------------------------------------------------------------------

    def to_dict(self):
        """R as an object, with keys in the order in which the host's library writes them."""
        groups = {}
        for rank in sorted(self.have):
            groups.setdefault(self.have[rank], []).append(rank)
        lite = []
        for have, ranks in groups.items():
            children = {kind: idset.encode(bounds) for kind, bounds in reversed(have)}
            lite.append({"rank": idset.text(ranks), "children": children})
        execution = {"R_lite": lite}
        if self.nslots is not None:
            execution["nslots"] = self.nslots
        execution["starttime"] = float(self.starttime)
        execution["expiration"] = float(self.expiration)
        if self.hosts or not self.have:
            execution["nodelist"] = [hostlist.encode(self.host_names())]
        if self.properties:
            execution["properties"] = {
                name: idset.text(ranks) for name, ranks in self.properties.items()
            }
        result = {"version": 1, "execution": execution}
        if self.scheduling is not None:
            result["scheduling"] = self.scheduling
        return result

    # -- contents --------------------------------------------------------------------------------

    def host_names(self):
        """The hosts in rank order."""
        return [self.hosts.get(rank, f"rank{rank}") for rank in sorted(self.have)]

    def members(self, bounds):
        """The ranks of this set among `bounds`, as a set."""
        return set(idset.members(idset.intersect(bounds, idset.from_ids(self.have))))

    # -- parts and combinations ------------------------------------------------------------------

    def add(self, other):
        """Add the resources of another set; resources in both appear once."""
        self._add(other.have)
        for rank, host in other.hosts.items():
            self.hosts.setdefault(rank, host)
        if self.hosts.keys() != self.have.keys():
            # A nodelist is for all ranks or none (RFC 20).
            self.hosts = {}
        for name, ranks in other.properties.items():
            self.properties[name] = self.properties.get(name, set()) | ranks

    def _add(self, have):
        if self.have.keys().isdisjoint(have):
            self.have.update(have)
            return
        for rank, more in have.items():
            old = self.have.get(rank)
            self.have[rank] = more if old is None else _union(old, more)

    def select(self, ranks):
        """The part on these ranks (a set)."""
        return self._with({rank: rank for rank in self.have if rank in ranks})

    def renumber(self):
        """The same for the instance in a job: ranks, and cores of each, count from 0 in their order.

        GPUs keep their numbers. The reader of ``scheduling`` renumbers that (RFC 49).
        """
        result = self._with({rank: new for new, rank in enumerate(sorted(self.have))})
        result.have = {rank: _cores_from_0(have) for rank, have in result.have.items()}
        return result

    def _with(self, number):
        """The part on the ranks that are keys of a dict, which has the number of each."""
        result = type(self)()
        result.__dict__.update(self.__dict__)
        result.have = {new: self.have[rank] for rank, new in number.items()}
        result.hosts = {new: self.hosts[rank] for rank, new in number.items() if self.hosts}
        kept = {
            name: {number[rank] for rank in ranks & number.keys()}
            for name, ranks in self.properties.items()
        }
        result.properties = {name: ranks for name, ranks in kept.items() if ranks}
        return result


def check_property(name):
    """Check the name of a property (RFC 20).

    Raises:
        ValueError: not a valid property name
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"property {name!r}: a name may not be empty")
    for char in name:
        if char in ILLEGAL_IN_PROPERTIES:
            raise ValueError(f"invalid character '{char}' in property \"{name}\"")


def kinds(children):
    """The resources of a rank, {type: bounds}, in the form of `RSet.have`."""
    return tuple((kind, tuple(children[kind])) for kind in sorted(children) if children[kind])


def _cores_from_0(have):
    return tuple(
        (kind, (0, idset.count(bounds)) if kind == "core" else bounds) for kind, bounds in have
    )


def _union(a, b):
    a, b = dict(a), dict(b)
    return kinds(
        {kind: idset.union(a.get(kind, ()), b.get(kind, ())) for kind in a.keys() | b.keys()}
    )


def _decode(text, where):
    if not isinstance(text, str):
        raise ValueError(f"{where}: expected an idset, got {text!r}")
    try:
        return idset.decode(text)
    except ValueError as exc:
        raise ValueError(f"{where}: {exc}") from None


def uniform(hosts, ncores, ngpus=0):
    """R of ranks that are all alike, one on each of `hosts` (list of str)."""
    children = {"core": idset.encode([0, ncores])}
    if ngpus:
        children = {"gpu": idset.encode([0, ngpus]), **children}
    execution = {
        "R_lite": [{"rank": idset.encode([0, len(hosts)]), "children": children}],
        "starttime": 0.0,
        "expiration": 0.0,
        "nodelist": [hostlist.encode(hosts)],
    }
    return {"version": 1, "execution": execution}


# -- of the R of a job, as an object; nothing here changes it --------------------------------------


def ranks(R):
    """Ranks of `R`, ascending (list of int)."""
    mask = 0
    for entry in R["execution"]["R_lite"]:
        mask |= parse_idset(entry["rank"])
    return members(mask)


def hosts(R):
    """Host names of `R` in rank order (list of str)."""
    names = []
    for text in R["execution"].get("nodelist", ()):
        names.extend(hostlist.decode(text))
    return names


def children(R):
    """Return {rank: children object} of `R`."""
    table = {}
    for entry in R["execution"]["R_lite"]:
        table.update(dict.fromkeys(members(parse_idset(entry["rank"])), entry["children"]))
    return table


def is_sound(R):
    """Whether `R` has the form that the job manager and execution rely on."""
    try:
        table = children(R)
        return bool(table) and len(table) == len(hosts(R))
    except (TypeError, KeyError, ValueError, AttributeError):
        return False


def count(R):
    """Return (nodes, cores, GPUs) of `R`."""
    nodes = cores = gpus = 0
    for entry in R["execution"]["R_lite"]:
        many = popcount(parse_idset(entry["rank"]))
        nodes += many
        cores += many * popcount(parse_idset(entry["children"].get("core", "")))
        gpus += many * popcount(parse_idset(entry["children"].get("gpu", "")))
    return nodes, cores, gpus


def fragment(R, keep):
    """The part of `R` on the ranks `keep` (a set), for ``sched.free``: without times and ``nslots``, as from a real job manager."""
    return union([(R, set(ranks(R)) - keep)])


def union(sets):
    """One R, without times, of several: (R, ranks to leave out) of each."""
    total = RSet()
    for R, gone in sets:
        execution = {key: R["execution"][key] for key in _RESOURCES if key in R["execution"]}
        part = RSet({"version": 1, "execution": execution}, lenient=True)
        total.add(part.select(part.have.keys() - set(gone)))
    return total.to_dict()


def with_expiration(R, expiration):
    """`R` with another expiration."""
    return {**R, "execution": {**R["execution"], "expiration": expiration}}


def redacted(R):
    """`R` without the scheduler's private key."""
    if "scheduling" not in R:
        return R
    return {key: value for key, value in R.items() if key != "scheduling"}
