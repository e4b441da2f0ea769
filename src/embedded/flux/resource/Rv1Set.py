"""Resource sets of R version 1 (RFC 20)."""

import json

from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.resource.ResourceSetImplementation import ResourceSetImplementation
from flux_embedded.formats import constraint as _constraint
from flux_embedded.formats import hostlist as _hostlist
from flux_embedded.formats import idset as _idset

__all__ = ["Rv1Set"]

MAX_RANKS = 1 << 20


class Rv1Set(ResourceSetImplementation):
    """A set of ranks and what each has.

    Args:
        R (dict or str): R, version 1; its ``scheduling`` key is dropped.
            None: nothing

    Raises:
        ValueError: the first problem found, with its path
    """

    version = 1

    # have: rank -> what it has, ((type, bounds), ...) with bounds a tuple as
    # in formats.idset; ranks that are alike share the object. hosts: rank ->
    # host name, empty where R has no nodelist. properties: name -> set of ranks.

    def __init__(self, R=None):
        self.have = {}
        self.hosts = {}
        self.properties = {}
        self.starttime = 0.0
        self.expiration = 0.0
        if R is not None:
            self._read(json.loads(R) if isinstance(R, (str, bytes)) else R)

    # -- R in ------------------------------------------------------------------

    def _read(self, R):
        if not isinstance(R, dict):
            raise ValueError("R: expected an object")
        execution = R.get("execution", {"R_lite": []})
        if not isinstance(execution, dict):
            raise ValueError("execution: expected an object")
        entries = execution.get("R_lite")
        if not isinstance(entries, list):
            raise ValueError("execution.R_lite: expected an array")
        for i, entry in enumerate(entries):
            self._read_entry(entry, f"execution.R_lite[{i}]")
        if "nodelist" in execution:
            self._read_nodelist(execution["nodelist"])
        properties = execution.get("properties", {})
        if not isinstance(properties, dict):
            raise ValueError("execution.properties: expected an object")
        for name, ranks in properties.items():
            where = f"execution.properties.{name}"
            _check_property(name)
            members = self._members(_decode(ranks, where))
            if members:
                self.properties[name] = members
        for key in ("starttime", "expiration"):
            value = execution.get(key, 0.0)
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not 0 <= value < 1e18
            ):
                raise ValueError(f"execution.{key}: {value!r} is not a time")
            setattr(self, key, float(value))
        if self.starttime and self.expiration and self.expiration <= self.starttime:
            raise ValueError("execution.expiration: not after execution.starttime")

    def _read_entry(self, entry, where):
        if not isinstance(entry, dict):
            raise ValueError(f"{where}: expected an object")
        ranks = _decode(entry.get("rank"), f"{where}.rank")
        if _idset.count(ranks) + len(self.have) > MAX_RANKS:
            raise ValueError(f"{where}.rank: more than {MAX_RANKS} ranks")
        children = entry.get("children")
        if not isinstance(children, dict):
            raise ValueError(f"{where}.children: expected an object")
        have = []
        for kind in sorted(children):
            bounds = _decode(children[kind], f"{where}.children.{kind}")
            if bounds:
                have.append((kind, tuple(bounds)))
        self._merge(dict.fromkeys(_idset.members(ranks), tuple(have)))

    def _merge(self, have):
        """Add what ranks have to what they had."""
        if self.have.keys().isdisjoint(have):
            self.have.update(have)
            return
        for rank, kinds in have.items():
            old = self.have.get(rank)
            self.have[rank] = kinds if old is None else _combine(old, kinds, _idset.UNION)

    def _read_nodelist(self, nodelist):
        if not isinstance(nodelist, list):
            raise ValueError("execution.nodelist: expected an array")
        hosts = []
        for text in nodelist:
            if not isinstance(text, str):
                raise ValueError("execution.nodelist: expected strings")
            try:
                hosts += _hostlist.decode(text)
            except ValueError as exc:
                raise ValueError(f"execution.nodelist: {exc}") from None
        # Too few names, or too many, are no error: so it is with the real ones.
        self.hosts = dict(zip(sorted(self.have), hosts))
        for rank in self.have.keys() - self.hosts.keys():
            self.hosts[rank] = f"rank{rank}"

    def _members(self, bounds):
        """The ranks of this set among `bounds`, as a set."""
        if _idset.count(bounds) < len(self.have):
            return {rank for rank in _idset.members(bounds) if rank in self.have}
        bounds = IDset._make(bounds)
        return {rank for rank in self.have if bounds.test(rank)}

    # -- R out -----------------------------------------------------------------

    def _groups(self):
        """Ranks that have the same: [(bounds of ranks, what they have)] by lowest rank."""
        groups = {}
        for rank in sorted(self.have):
            groups.setdefault(self.have[rank], []).append(rank)
        return [(_idset.from_ids(ranks), kinds) for kinds, ranks in groups.items()]

    def to_dict(self):
        lite = []
        for ranks, kinds in self._groups():
            children = {kind: _idset.encode(bounds) for kind, bounds in kinds}
            if "core" not in children:
                children = {"core": "", **children}
            lite.append({"rank": _idset.encode(ranks), "children": children})
        execution = {
            "R_lite": lite,
            "starttime": self.starttime,
            "expiration": self.expiration,
        }
        if self.hosts or not self.have:
            execution["nodelist"] = [self.nodelist().encode()]
        if self.properties:
            execution["properties"] = self.get_properties()
        return {"version": 1, "execution": execution}

    def dumps(self):
        out = []
        for ranks, kinds in self._groups():
            text = _idset.encode(ranks, brackets=True)
            have = dict(kinds)
            have.setdefault("core", ())
            parts = []
            for kind in sorted(have):
                parts.append(kind + _idset.encode(have[kind], brackets=True))
            out.append(f"rank{text}/{','.join(parts)}")
        return " ".join(out)

    # -- asking it -------------------------------------------------------------

    def ranks(self):
        return IDset(self.have)

    def nodelist(self):
        return Hostlist([self.hosts.get(rank, f"rank{rank}") for rank in sorted(self.have)])

    def count(self, kind):
        if kind == "node":
            return len(self.have)
        total = 0
        sizes = {}
        for kinds in self.have.values():
            size = sizes.get(kinds)
            if size is None:
                size = sizes[kinds] = _idset.count(dict(kinds).get(kind, ()))
            total += size
        return total

    def host_ranks(self, hosts, ignore_nomatch=False):
        """Return the ranks of hosts, all of them where a host has several.

        Args:
            hosts: hostlist string, Hostlist, or iterable of strings
            ignore_nomatch (bool): leave out hosts that are not in the set

        Raises:
            FileNotFoundError: a host is not in the set
        """
        places = {}
        for rank in sorted(self.hosts):
            places.setdefault(self.hosts[rank], []).append(rank)
        wanted = Hostlist(hosts)
        missing = Hostlist([name for name in wanted if name not in places])
        if missing and not ignore_nomatch:
            plural = "s" if len(missing) > 1 else ""
            raise FileNotFoundError(2, f"host{plural} '{missing}' not found")
        return [rank for name in dict.fromkeys(wanted) for rank in places.get(name, ())]

    def get_properties(self):
        return {
            name: _idset.encode(_idset.from_ids(ranks)) for name, ranks in self.properties.items()
        }

    # -- changing it -----------------------------------------------------------

    def set_property(self, name, ranks=None):
        """Give ranks (default: all) a property.

        Raises:
            ValueError: not a property name, or a rank is not in the set
        """
        _check_property(name)
        members = set(self.have) if ranks is None else self._members(ranks.bounds)
        if ranks is not None and len(members) != ranks.count():
            missing = IDset([rank for rank in ranks if rank not in self.have])
            raise ValueError(f"ranks {missing} not in resource set")
        self.properties[name] = self.properties.get(name, set()) | members

    def remove_ranks(self, ranks):
        self.keep(set(self.have) - self._members(ranks.bounds))

    def keep(self, ranks):
        self.have = {rank: kinds for rank, kinds in self.have.items() if rank in ranks}
        self.hosts = {rank: host for rank, host in self.hosts.items() if rank in ranks}
        properties = {name: members & ranks for name, members in self.properties.items()}
        self.properties = {name: members for name, members in properties.items() if members}

    def append(self, other):
        """Add what another set has; what is in both is in the result once."""
        self._merge(other.have)
        for rank, host in other.hosts.items():
            self.hosts.setdefault(rank, host)
        if self.hosts.keys() != self.have.keys():
            # A nodelist is for all ranks or none (RFC 20).
            self.hosts = {}
        for name, ranks in other.properties.items():
            self.properties[name] = self.properties.get(name, set()) | ranks

    add = append

    # -- parts and combinations ------------------------------------------------

    def copy(self):
        result = Rv1Set()
        result.have = dict(self.have)
        result.hosts = dict(self.hosts)
        result.properties = {name: set(ranks) for name, ranks in self.properties.items()}
        result.starttime = self.starttime
        result.expiration = self.expiration
        return result

    def copy_ranks(self, ranks):
        result = self.copy()
        result.keep(self._members(ranks.bounds))
        return result

    def copy_constraint(self, constraint):
        """Return the part on ranks that match a constraint (RFC 31), as object or JSON text.

        Raises:
            ValueError: not a constraint
        """
        if isinstance(constraint, str):
            constraint = json.loads(constraint)
        _constraint.validate(constraint)
        places = {}
        for rank, host in self.hosts.items():
            places.setdefault(host, []).append(rank)
        ranks = _constraint.match(
            constraint,
            _idset.from_ids(self.have),
            {name: _idset.from_ids(members) for name, members in self.properties.items()},
            lambda host: places.get(host, ()),
        )
        result = self.copy()
        result.keep(self._members(ranks))
        return result

    def union(self, other):
        result = self.copy()
        result.add(other)
        return result

    def diff(self, other):
        return self._combined(other, _idset.DIFFERENCE)

    def intersect(self, other):
        return self._combined(other, _idset.INTERSECT)

    def _combined(self, other, how):
        result = self.copy()
        cache = {}
        for rank, kinds in self.have.items():
            pair = (kinds, other.have.get(rank, ()))
            if pair not in cache:
                cache[pair] = _combine(*pair, how)
            result.have[rank] = cache[pair]
        # A rank that has nothing in either set is in both of them all the same.
        empty = how == _idset.INTERSECT and other.have.keys() & self.have.keys()
        result.keep(
            {
                rank
                for rank, kinds in result.have.items()
                if kinds or (empty and rank in empty and not self.have[rank])
            }
        )
        return result


def _combine(a, b, how):
    """What a rank has, of two, each ((type, bounds), ...)."""
    a, b = dict(a), dict(b)
    result = []
    for kind in sorted(a.keys() | b.keys()):
        bounds = _idset.combine(a.get(kind, ()), b.get(kind, ()), how)
        if bounds:
            result.append((kind, tuple(bounds)))
    return tuple(result)


def _decode(text, where):
    if not isinstance(text, str):
        raise ValueError(f"{where}: expected an idset")
    try:
        return _idset.decode(text)
    except ValueError as exc:
        raise ValueError(f"{where}: {exc}") from None


def _check_property(name):
    if not _constraint.is_property_name(name):
        raise ValueError(f"{name!r} is not a property name")
