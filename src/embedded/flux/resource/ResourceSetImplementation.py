"""What a resource set of any version of R must be able to do."""

from abc import ABC, abstractmethod

__all__ = ["ResourceSetImplementation"]


class ResourceSetImplementation(ABC):
    """The part of a ResourceSet that knows one version of R.

    ``ranks`` arguments are IDsets; ``constraint`` is an object of RFC 31.
    Methods that combine sets take another implementation of the same version.
    """

    #: version of R
    version = 0

    @abstractmethod
    def to_dict(self):
        """Return R as a dict."""

    @abstractmethod
    def dumps(self):
        """Return the set in short form, such as ``rank[0-1]/core[0-3]``."""

    @abstractmethod
    def ranks(self):
        """Return the execution targets, an IDset."""

    @abstractmethod
    def nodelist(self):
        """Return the hosts in rank order, a Hostlist."""

    @abstractmethod
    def count(self, kind):
        """Return how many resources of a type (core, gpu, node) there are; 0 for unknown types."""

    @abstractmethod
    def copy_ranks(self, ranks):
        """Return the part on some ranks."""

    @abstractmethod
    def copy_constraint(self, constraint):
        """Return the part on ranks that match a constraint."""

    @abstractmethod
    def remove_ranks(self, ranks):
        """Remove ranks."""

    @abstractmethod
    def host_ranks(self, hosts, ignore_nomatch=False):
        """Return the ranks of hosts, a list of int."""

    @abstractmethod
    def set_property(self, name, ranks=None):
        """Give ranks (default: all) a property."""

    @abstractmethod
    def get_properties(self):
        """Return the ranks of each property: a dict of idset strings."""

    @abstractmethod
    def union(self, other):
        """Return what is in either set."""

    @abstractmethod
    def diff(self, other):
        """Return what is in this set but not in the other."""

    @abstractmethod
    def intersect(self, other):
        """Return what is in both sets."""

    @abstractmethod
    def append(self, other):
        """Add what another set has."""

    @abstractmethod
    def add(self, other):
        """Add what another set has."""

    @abstractmethod
    def copy(self):
        """Return a copy."""
