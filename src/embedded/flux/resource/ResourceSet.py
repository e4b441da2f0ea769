"""Sets of resources, whatever the version of R they come from."""

import json
from collections.abc import Mapping

from flux.idset import IDset
from flux.resource.ResourceSetImplementation import ResourceSetImplementation
from flux.resource.Rv1Set import Rv1Set

__all__ = ["ResourceSet"]

_VERSIONS = {1: Rv1Set}


class ResourceSet:
    """A set of ranks and what each has.

    Args:
        arg: R as dict or JSON text, a ResourceSetImplementation, or None for
            an empty set
        version (int): version of the empty set
        kwargs: passed to the implementation

    Attributes:
        impl (ResourceSetImplementation): what does the work

    Raises:
        ValueError: ``R version N not supported``, or R is malformed
        KeyError: R has no version
        TypeError: `arg` is something else
    """

    def __init__(self, arg=None, version=1, **kwargs):
        self._state = None
        if isinstance(arg, ResourceSet):
            arg = arg.impl
        if isinstance(arg, ResourceSetImplementation):
            self.impl = arg
            return
        if isinstance(arg, (str, bytes)):
            arg = json.loads(arg)
        if arg is not None:
            if not isinstance(arg, Mapping):
                raise TypeError(f"ResourceSet cannot be instantiated from {type(arg)}")
            version = arg["version"]
        if isinstance(version, bool) or not isinstance(version, int) or version not in _VERSIONS:
            raise ValueError(f"R version {version} not supported")
        self.impl = _VERSIONS[version](arg, **kwargs)

    # -- as text and objects ---------------------------------------------------

    def dumps(self):
        """The set in short form, such as ``rank[0-1]/core[0-3],gpu0``."""
        return self.impl.dumps()

    __str__ = dumps

    def to_dict(self):
        """R as a dict."""
        return self.impl.to_dict()

    def encode(self):
        """R as JSON text."""
        return json.dumps(self.to_dict())

    # -- properties ------------------------------------------------------------

    @property
    def nnodes(self):
        """Number of ranks."""
        return self.impl.count("node")

    @property
    def ncores(self):
        return self.impl.count("core")

    @property
    def ngpus(self):
        return self.impl.count("gpu")

    @property
    def ranks(self):
        """The execution targets, an IDset."""
        return self.impl.ranks()

    @property
    def nodelist(self):
        """The hosts in rank order, a Hostlist."""
        return self.impl.nodelist()

    @property
    def rlist(self):
        """The set in short form."""
        return self.dumps()

    @property
    def properties(self):
        """The names of its properties, separated by commas."""
        return ",".join(self.impl.get_properties())

    @property
    def state(self):
        """What the owner of the set calls its state, such as ``free``."""
        return self._state

    @state.setter
    def state(self, value):
        self._state = value

    @property
    def expiration(self):
        """End of validity in seconds since the epoch, 0.0 for none."""
        return self.impl.expiration

    @expiration.setter
    def expiration(self, value):
        self.impl.expiration = float(value)

    @property
    def starttime(self):
        """Start of validity in seconds since the epoch, 0.0 for none."""
        return self.impl.starttime

    @starttime.setter
    def starttime(self, value):
        self.impl.starttime = float(value)

    @property
    def version(self):
        """Version of R."""
        return self.impl.version

    # -- questions -------------------------------------------------------------

    def count(self, kind):
        """How many resources of a type (core, gpu, node) there are; 0 for other types."""
        return self.impl.count(kind)

    def host_ranks(self, hosts, ignore_nomatch=False):
        """The ranks of hosts, a list of int.

        Raises:
            FileNotFoundError: a host is not in the set and `ignore_nomatch` is not set
        """
        return self.impl.host_ranks(hosts, ignore_nomatch)

    def get_properties(self):
        """The ranks of each property, as JSON text."""
        return json.dumps(self.impl.get_properties())

    # -- parts -----------------------------------------------------------------

    def _with_state(self, impl):
        result = ResourceSet(impl)
        result._state = self._state
        return result

    def copy(self):
        return self._with_state(self.impl.copy())

    def copy_ranks(self, ranks):
        """The part on some ranks (IDset or string)."""
        return self._with_state(self.impl.copy_ranks(IDset(ranks)))

    def copy_constraint(self, constraint):
        """The part on ranks that match a constraint (RFC 31), given as object or JSON text."""
        return self._with_state(self.impl.copy_constraint(constraint))

    # -- changing it -----------------------------------------------------------

    def remove_ranks(self, ranks):
        """Remove ranks (IDset or string); returns self."""
        self.impl.remove_ranks(IDset(ranks))
        return self

    def set_property(self, name, ranks=None):
        """Give ranks (IDset or string; default: all) a property; returns self.

        Raises:
            ValueError: not a property name, or a rank is not in the set
        """
        self.impl.set_property(name, None if ranks is None else IDset(ranks))
        return self

    def append(self, *others):
        """Add sets; returns self."""
        for other in others:
            self.impl.append(_set(other).impl)
        return self

    def add(self, *others):
        """Add sets; returns self."""
        for other in others:
            self.impl.add(_set(other).impl)
        return self

    # -- combining sets --------------------------------------------------------

    def union(self, *others):
        impl = self.impl
        for other in others:
            impl = impl.union(_set(other).impl)
        return self._with_state(impl if others else impl.copy())

    def diff(self, *others):
        impl = self.impl
        for other in others:
            impl = impl.diff(_set(other).impl)
        return self._with_state(impl if others else impl.copy())

    def intersect(self, *others):
        impl = self.impl
        for other in others:
            impl = impl.intersect(_set(other).impl)
        return self._with_state(impl if others else impl.copy())

    def __or__(self, other):
        return self.union(other)

    def __sub__(self, other):
        return self.diff(other)

    def __and__(self, other):
        return self.intersect(other)


def _set(arg):
    return arg if isinstance(arg, ResourceSet) else ResourceSet(arg)
