"""Resource sets of R version 1 (RFC 20)."""

import json

from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.resource.ResourceSetImplementation import ResourceSetImplementation
from flux_embedded.formats import constraint as _constraint
from flux_embedded.formats import idset as _idset
from flux_embedded.formats.rset import RSet as _RSet

__all__ = ["Rv1Set"]


class Rv1Set(_RSet, ResourceSetImplementation):
    """A set of ranks and what each has.

    Args:
        R (dict or str): R, version 1; its ``scheduling`` key is dropped.
            None: nothing

    Raises:
        ValueError: the first problem found, with its path
    """

    version = 1

    def __init__(self, R=None):
        if isinstance(R, (str, bytes)):
            R = json.loads(R)
        if isinstance(R, dict):
            R = {"execution": {"R_lite": []}, **R}
        # Too few host names, or too many, are no error: so it is with the host's class.
        super().__init__(R, lenient=True)
        self.scheduling = self.nslots = None

    def to_dict(self):
        R = super().to_dict()
        for entry in R["execution"]["R_lite"]:
            entry["children"].setdefault("core", "")
        return R

    dumps = _RSet.short
    append = _RSet.add

    def ranks(self):
        return IDset(self.have)

    def nodelist(self):
        return Hostlist(self.host_names())

    def host_ranks(self, hosts, ignore_nomatch=False):
        """Return the ranks of hosts, all of them where a host has several.

        Args:
            hosts: hostlist string, Hostlist, or iterable of strings
            ignore_nomatch (bool): leave out hosts that are not in the set

        Raises:
            FileNotFoundError: a host is not in the set
        """
        places = self._places()
        wanted = Hostlist(hosts)
        missing = Hostlist([name for name in wanted if name not in places])
        if missing and not ignore_nomatch:
            plural = "s" if len(missing) > 1 else ""
            raise FileNotFoundError(2, f"host{plural} '{missing}' not found")
        return [rank for name in dict.fromkeys(wanted) for rank in places.get(name, ())]

    def _places(self):
        places = {}
        for rank in sorted(self.hosts):
            places.setdefault(self.hosts[rank], []).append(rank)
        return places

    def set_property(self, name, ranks=None):
        """Give ranks (default: all) a property.

        Raises:
            ValueError: not a property name, or a rank is not in the set
        """
        if ranks is not None:
            missing = ranks - IDset(self.have)
            if missing:
                raise ValueError(f"ranks {missing} not in resource set")
            ranks = self.members(ranks.bounds)
        super().set_property(name, ranks)

    def remove_ranks(self, ranks):
        self.keep(set(self.have) - self.members(ranks.bounds))

    def copy_ranks(self, ranks):
        return self.select(self.members(ranks.bounds))

    def copy_constraint(self, constraint):
        """Return the part on ranks that match a constraint (RFC 31), as object or JSON text.

        Raises:
            ValueError: not a constraint
        """
        if isinstance(constraint, str):
            constraint = json.loads(constraint)
        _constraint.validate(constraint)
        places = self._places()
        ranks = _constraint.match(
            constraint,
            _idset.from_ids(self.have),
            {name: _idset.from_ids(members) for name, members in self.properties.items()},
            lambda host: places.get(host, ()),
        )
        return self.select(self.members(ranks))
