"""The resource inventory: a checked R (RFC 20) and the questions the resource service asks of it.

An Inventory does not change; what changes the inventory makes a new one. Sets of ranks are lists
of bounds as in `flux_embedded.formats.idset`: their size depends on the number of runs, so that
16,384 nodes in one run cost what one costs.
"""

import math
from bisect import bisect_right

from flux_embedded.formats import constraint, hostlist, idset

#: Characters that no property name may have (RFC 20).


class Inventory:
    """The resources of an instance.

    Args:
        R (dict): an RFC 20 resource set, version 1. It is kept, not copied.
        may_be_empty (bool): accept one without ranks, which RFC 20 does not know

    Attributes:
        R (dict): as given
        ranks (list): bounds of its ranks
        hosts (list of str): host of each rank, in rank order
        properties (dict): property name -> bounds

    Raises:
        ValueError: R is not valid; the text names the path of the first problem
    """

    def __init__(self, R, may_be_empty=False):
        self.R = R
        execution = _check_top(R, may_be_empty)
        self.ranks = []
        for i, entry in enumerate(execution["R_lite"]):
            self.ranks = idset.union(self.ranks, _check_entry(entry, f"execution.R_lite[{i}]"))
        self.hosts = _check_hosts(execution["nodelist"])
        count = idset.count(self.ranks)
        if len(self.hosts) != count:
            raise ValueError(f"execution.nodelist: {len(self.hosts)} hosts for {count} ranks")
        self.properties = {}
        for name, text in execution.get("properties", {}).items():
            check_property(name)
            where = f"execution.properties.{name}"
            self.properties[name] = members = _check_idset(text, where)
            if idset.difference(members, self.ranks):
                raise ValueError(
                    f"{where}: rank {idset.encode(idset.difference(members, self.ranks))} is not in R_lite"
                )

    def __len__(self):
        return len(self.hosts)

    @property
    def expiration(self):
        """End of the whole resource set, seconds since the epoch; 0 if it has none."""
        return self.R["execution"].get("expiration", 0)

    def host(self, rank):
        """Return the host name of `rank`, which must be in the inventory."""
        return self.hosts[_position(self.ranks, rank)]

    def nodelist(self, bounds):
        """Return the hosts of some ranks as a hostlist, in rank order."""
        return hostlist.encode([self.host(rank) for rank in idset.members(bounds)])

    def ranks_of_hosts(self, names):
        """Return the bounds of all ranks on the hosts `names`.

        Raises:
            ValueError: a host is not there; the text lists all such hosts
        """
        wanted = set(names)
        found = [
            rank for rank, host in zip(idset.members(self.ranks), self.hosts) if host in wanted
        ]
        missing = wanted.difference(self.hosts)
        if missing:
            raise ValueError(
                "invalid hosts: " + hostlist.encode([n for n in names if n in missing])
            )
        return idset.from_ids(found)

    def restrict(self, bounds):
        """Return an R with only those of `bounds` that are in the inventory, without ``scheduling``."""
        keep = idset.intersect(bounds, self.ranks)
        execution = self.R["execution"]
        lite = []
        for entry in execution["R_lite"]:
            part = idset.intersect(idset.decode(entry["rank"]), keep)
            if part:
                lite.append({"rank": idset.encode(part), "children": entry["children"]})
        result = {
            "R_lite": lite,
            "starttime": execution.get("starttime", 0.0),
            "expiration": execution.get("expiration", 0.0),
            "nodelist": [self.nodelist(keep)],
        }
        properties = {}
        for name, members in self.properties.items():
            part = idset.intersect(members, keep)
            if part:
                properties[name] = idset.encode(part)
        if properties:
            result["properties"] = properties
        return {"version": 1, "execution": result}

    def without(self, bounds):
        """Return the Inventory that is left when the ranks in `bounds` go; it may be empty."""
        if not idset.intersect(bounds, self.ranks):
            return self
        R = self.restrict(idset.difference(self.ranks, bounds))
        if "scheduling" in self.R:
            R["scheduling"] = self._cut_scheduling(bounds)
        return Inventory(R, may_be_empty=True)

    def _cut_scheduling(self, bounds):
        """R's ``scheduling`` without the ranks in `bounds`.

        It is nobody's business but its writer's, except that TreePool's names ranks, and is refused
        if they are not those of R. They may still be the enclosing instance's, so that only their
        order counts (RFC 49).
        """
        scheduling = self.R["scheduling"]
        if not self.has_topology:
            return scheduling
        try:
            named = [idset.decode(entry["ranks"]) for entry in scheduling["children"]]
            every = []
            for ranks in named:
                every = idset.union(every, ranks)
            own = list(idset.members(every))
            left = idset.from_ids(
                own[i]
                for i, rank in enumerate(idset.members(self.ranks))
                if not idset.intersect([rank, rank + 1], bounds)
            )
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            return scheduling  # not what we think it is: its reader will say so
        children = [
            {**entry, "ranks": idset.encode(idset.intersect(ranks, left))}
            for entry, ranks in zip(scheduling["children"], named)
            if idset.intersect(ranks, left)
        ]
        return {**scheduling, "children": children}

    @property
    def has_topology(self):
        """Whether R has a topology for TreePool."""
        scheduling = self.R.get("scheduling")
        writer = scheduling.get("writer") if isinstance(scheduling, dict) else None
        return isinstance(writer, str) and writer.partition(":")[0] == "TreePool"

    def with_properties(self, properties):
        """Return the Inventory with exactly the `properties` (name -> bounds); empty ones are left out."""
        execution = {k: v for k, v in self.R["execution"].items() if k != "properties"}
        text = {name: idset.encode(b) for name, b in properties.items() if b}
        if text:
            execution["properties"] = text
        return Inventory({**self.R, "execution": execution}, may_be_empty=True)

    def with_expiration(self, expiration):
        """Return the Inventory that ends at `expiration`, seconds since the epoch (0: never).

        Raises:
            ValueError: not a time, or before the start time
        """
        return Inventory({**self.R, "execution": {**self.R["execution"], "expiration": expiration}})


def empty_R():
    """Return the R of no resources at all, as status responses have it."""
    return {
        "version": 1,
        "execution": {"R_lite": [], "starttime": 0.0, "expiration": 0.0, "nodelist": [""]},
    }


def check_property(name):
    """Raise ValueError if `name` cannot be a property (RFC 20)."""
    if not constraint.is_property_name(name):
        raise ValueError(
            f"property {name!r}: a name may not be empty or have any of {constraint.ILLEGAL}"
        )


def _position(bounds, rank):
    """Index of `rank` among the members of `bounds`."""
    at = bisect_right(bounds, rank)
    if not at & 1:
        raise KeyError(rank)
    before = sum(bounds[1 : at - 1 : 2]) - sum(bounds[0 : at - 1 : 2])
    return before + rank - bounds[at - 1]


def _check_top(R, may_be_empty):
    if not isinstance(R, dict):
        raise ValueError("R: expected an object")
    if R.get("version") != 1 or isinstance(R["version"], bool):
        raise ValueError(
            f"version: expected 1, got {R.get('version')!r}"
            if "version" in R
            else "version: missing"
        )
    execution = R.get("execution")
    if not isinstance(execution, dict):
        raise ValueError("execution: expected an object")
    if not isinstance(execution.get("R_lite"), list) or not (execution["R_lite"] or may_be_empty):
        raise ValueError("execution.R_lite: expected an array with at least one entry")
    times = []
    for key in ("starttime", "expiration"):
        value = execution.get(key, 0)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise ValueError(f"execution.{key}: expected seconds since the epoch, got {value!r}")
        times.append(value)
    if times[1] and times[1] <= times[0]:
        raise ValueError("execution.expiration: not after starttime")
    if not isinstance(execution.get("properties", {}), dict):
        raise ValueError("execution.properties: expected an object")
    return execution


def _check_entry(entry, where):
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: expected an object")
    members = _check_idset(entry.get("rank"), f"{where}.rank")
    if not members:
        raise ValueError(f"{where}.rank: empty")
    children = entry.get("children")
    if not isinstance(children, dict):
        raise ValueError(f"{where}.children: expected an object")
    for name, text in children.items():
        _check_idset(text, f"{where}.children.{name}")
    if "core" not in children:
        raise ValueError(f"{where}.children.core: missing")
    return members


def _check_hosts(nodelist):
    if not isinstance(nodelist, list) or not all(isinstance(item, str) for item in nodelist):
        raise ValueError("execution.nodelist: expected an array of hostlists")
    hosts = []
    try:
        for item in nodelist:
            hosts += hostlist.decode(item)
    except ValueError as exc:
        raise ValueError(f"execution.nodelist: {exc}") from None
    return hosts


def _check_idset(text, where):
    if not isinstance(text, str):
        raise ValueError(f"{where}: expected an idset, got {text!r}")
    try:
        return idset.decode(text)
    except ValueError as exc:
        raise ValueError(f"{where}: {exc}") from None
