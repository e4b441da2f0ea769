"""Sets of resources as R version 1 (RFC 20) has them, for the commands.

The pools of ``flux.resource`` allocate; this adds, takes away, selects and prints, and imports
in a millisecond.
"""

import json

from flux_embedded.formats import constraint, hostlist, idset


class RError(ValueError):
    """Not an R, or an operation it does not allow; the text says why."""


def mask_of(text):
    """The bits of an idset string."""
    bounds = idset.decode(text)
    mask = 0
    for lo, hi in zip(bounds[::2], bounds[1::2]):
        mask |= (1 << hi) - (1 << lo)
    return mask


def ids_of(mask):
    """The bits of a mask as bounds of an idset."""
    bounds, low = [], 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        low += skip
        run = (~mask & (mask + 1)).bit_length() - 1
        bounds += (low, low + run)
        mask >>= run
        low += run
    return bounds


def text_of(mask):
    return idset.encode(ids_of(mask))


def count_of(mask):
    return bin(mask).count("1")


class RSet:
    """Ranks, each with cores, GPUs and a host.

    Attributes:
        ranks: rank -> (mask of cores, mask of GPUs), ascending.
        hosts: rank -> host name.
        properties: name -> set of ranks, in order of appearance.
        starttime, expiration: epoch seconds, 0 for none.
        nslots: of an allocation, else None.
        scheduling: the opaque key, None without.
    """

    def __init__(self, ranks=None, hosts=None, properties=None):
        self.ranks = ranks or {}
        self.hosts = hosts or {}
        self.properties = properties or {}
        self.starttime = 0.0
        self.expiration = 0.0
        self.nslots = None
        self.scheduling = None

    @classmethod
    def from_dict(cls, obj):
        """Read R.

        Raises:
            RError: naming what is missing or wrong
        """
        if not isinstance(obj, dict):
            raise RError("R is not an object")
        if "version" not in obj:
            raise RError("Object item not found: version")
        if obj["version"] != 1:
            raise RError(f"invalid version: {obj['version']}")
        execution = obj.get("execution")
        if not isinstance(execution, dict):
            raise RError("Object item not found: execution")
        if not isinstance(execution.get("R_lite"), list):
            raise RError("Object item not found: R_lite")
        ranks = {}
        try:
            for entry in execution["R_lite"]:
                children = entry["children"]
                cores = mask_of(children.get("core", ""))
                gpus = mask_of(children.get("gpu", ""))
                for rank in idset.members(idset.decode(str(entry["rank"]))):
                    old = ranks.get(rank, (0, 0))
                    ranks[rank] = (old[0] | cores, old[1] | gpus)
            names = []
            for text in execution.get("nodelist", ()):
                names += hostlist.decode(text)
            properties = {
                name: set(idset.ids(text)) for name, text in execution.get("properties", {}).items()
            }
        except KeyError as exc:
            raise RError(f"Object item not found: {exc.args[0]}") from None
        except (TypeError, AttributeError, ValueError) as exc:
            raise RError(str(exc)) from None
        ranks = dict(sorted(ranks.items()))
        if names and len(names) != len(ranks):
            raise RError(
                f"number of hosts ({len(names)}) does not match number of ranks ({len(ranks)})"
            )
        result = cls(ranks, dict(zip(ranks, names)), properties)
        result.starttime = execution.get("starttime", 0.0) or 0.0
        result.expiration = execution.get("expiration", 0.0) or 0.0
        result.nslots = execution.get("nslots")
        result.scheduling = obj.get("scheduling")
        return result

    def to_dict(self):
        """R as an object, with keys in the order in which the host's library writes them."""
        groups = {}
        for rank, children in self.ranks.items():
            groups.setdefault(children, []).append(rank)
        lite = []
        for (cores, gpus), members in groups.items():
            children = {}
            if gpus:
                children["gpu"] = text_of(gpus)
            if cores:
                children["core"] = text_of(cores)
            lite.append({"rank": idset.text(members), "children": children})
        execution = {
            "R_lite": lite,
            "starttime": float(self.starttime),
            "expiration": float(self.expiration),
        }
        if self.nslots is not None:
            execution["nslots"] = self.nslots
        execution["nodelist"] = [self.nodelist()]
        properties = {
            name: idset.text(members) for name, members in self.properties.items() if members
        }
        if properties:
            execution["properties"] = properties
        result = {"version": 1, "execution": execution}
        if self.scheduling is not None:
            result["scheduling"] = self.scheduling
        return result

    def dumps(self):
        return json.dumps(self.to_dict(), ensure_ascii=False)

    # -- what it holds

    def nodelist(self):
        return hostlist.encode([self.hosts[rank] for rank in self.ranks if rank in self.hosts])

    def rank_ids(self):
        return idset.text(self.ranks)

    def count(self, kind):
        """How many cores, gpus or nodes there are; 0 for anything else."""
        if kind == "node":
            return len(self.ranks)
        if kind not in ("core", "gpu"):
            return 0
        column = 0 if kind == "core" else 1
        return sum(count_of(children[column]) for children in self.ranks.values())

    def short(self):
        """``rank[0-1]/core[0-3],gpu0``, ranks that have the same put together."""
        groups = {}
        for rank, children in self.ranks.items():
            groups.setdefault(children, []).append(rank)
        parts = []
        for (cores, gpus), members in groups.items():
            children = ["core" + _bracketed(ids_of(cores))]
            if gpus:
                children.append("gpu" + _bracketed(ids_of(gpus)))
            text = _bracketed(idset.from_ids(members))
            parts.append(f"rank{text}/{','.join(children)}")
        return " ".join(parts)

    def rank_properties(self, rank):
        """The properties of a rank, in the order in which R has them."""
        return tuple(name for name, members in self.properties.items() if rank in members)

    # -- new sets

    def _with(self, ranks):
        """These ranks, with this set's hosts and properties."""
        result = RSet(
            dict(sorted(ranks.items())),
            {rank: self.hosts[rank] for rank in ranks if rank in self.hosts},
            {name: {r for r in members if r in ranks} for name, members in self.properties.items()},
        )
        result.properties = {name: ids for name, ids in result.properties.items() if ids}
        result.starttime, result.expiration = self.starttime, self.expiration
        result.scheduling = self.scheduling
        return result

    def select(self, wanted):
        """Only the ranks in wanted (a set)."""
        return self._with({rank: kids for rank, kids in self.ranks.items() if rank in wanted})

    def diff(self, other):
        """What other has not."""
        ranks = {}
        for rank, (cores, gpus) in self.ranks.items():
            if rank in other.ranks:
                cores &= ~other.ranks[rank][0]
                gpus &= ~other.ranks[rank][1]
            if cores or gpus:
                ranks[rank] = (cores, gpus)
        return self._with(ranks)

    def intersect(self, other):
        """What both have."""
        ranks = {}
        for rank, (cores, gpus) in self.ranks.items():
            if rank in other.ranks:
                cores &= other.ranks[rank][0]
                gpus &= other.ranks[rank][1]
                if cores or gpus:
                    ranks[rank] = (cores, gpus)
        return self._with(ranks)

    def append(self, other):
        """Both together.

        Raises:
            RError: they have resources in common
        """
        for rank, (cores, gpus) in other.ranks.items():
            old = self.ranks.get(rank, (0, 0))
            if old[0] & cores or old[1] & gpus:
                raise RError(f"rank {rank} has resources in both")
        return self.union(other)

    def union(self, other):
        """Both together, what they have in common once."""
        ranks = dict(self.ranks)
        for rank, (cores, gpus) in other.ranks.items():
            old = ranks.get(rank, (0, 0))
            ranks[rank] = (old[0] | cores, old[1] | gpus)
        result = self._with(ranks)
        result.hosts = {**other.hosts, **self.hosts}
        for name, members in other.properties.items():
            result.properties[name] = result.properties.get(name, set()) | members
        return result

    def remap(self):
        """Ranks, cores and GPUs renumbered from 0, as a sub-instance sees them."""
        number = {rank: n for n, rank in enumerate(self.ranks)}
        result = RSet(
            {
                number[rank]: ((1 << count_of(cores)) - 1, (1 << count_of(gpus)) - 1)
                for rank, (cores, gpus) in self.ranks.items()
            },
            {number[rank]: host for rank, host in self.hosts.items()},
            {
                name: {number[r] for r in members if r in number}
                for name, members in self.properties.items()
            },
        )
        result.starttime, result.expiration = self.starttime, self.expiration
        result.scheduling = self.scheduling
        return result

    def rerank(self, hosts):
        """Ranks renumbered in the order of hosts.

        Raises:
            RError: the hosts are not those of this set
        """
        if len(hosts) != len(self.ranks):
            raise RError(
                f"Number of hosts ({len(hosts)}) does not match node count ({len(self.ranks)})"
            )
        free = {}
        for rank in self.ranks:
            free.setdefault(self.hosts.get(rank), []).append(rank)
        number = {}
        for new, host in enumerate(hosts):
            if not free.get(host):
                raise RError(f"Host {host} not found in resources")
            number[free[host].pop(0)] = new
        ranks = {number[rank]: children for rank, children in self.ranks.items()}
        result = RSet(
            dict(sorted(ranks.items())),
            {number[rank]: host for rank, host in self.hosts.items()},
            {
                name: {number[r] for r in members if r in number}
                for name, members in self.properties.items()
            },
        )
        result.starttime, result.expiration = self.starttime, self.expiration
        return result

    def set_property(self, name, members=None):
        """Give a property to these ranks, to all by default.

        Raises:
            RError: a rank is not there, or the name is not allowed
        """
        if not constraint.is_property_name(name):
            raise RError(f'property "{name}" contains an invalid character')
        members = set(self.ranks) if members is None else members
        for rank in sorted(members):
            if rank not in self.ranks:
                raise RError(f"rank {rank} not found in target resource list")
        self.properties[name] = self.properties.get(name, set()) | members

    def find(self, text):
        """The ranks that an idset or hostlist names, as far as they are here.

        Raises:
            RError: it is neither
        """
        try:
            return set(idset.ids(text))
        except ValueError:
            pass
        try:
            names = hostlist.decode(text)
        except ValueError as exc:
            raise RError(str(exc)) from None
        return {rank for rank, host in self.hosts.items() if host in set(names)}


def _bracketed(bounds):
    text = idset.encode(bounds)
    return f"[{text}]" if "," in text or "-" in text else text


def read_all(text):
    """Every R in a text of JSON objects one after the other."""
    decoder = json.JSONDecoder()
    pos, found = 0, []
    while True:
        while pos < len(text) and text[pos].isspace():
            pos += 1
        if pos >= len(text):
            return found
        try:
            obj, pos = decoder.raw_decode(text, pos)
        except ValueError as exc:
            raise RError(str(exc)) from None
        found.append(RSet.from_dict(obj))
