"""What a pool implementation provides to its ``ResourcePool`` wrapper."""

import time

from flux.resource.errors import InfeasibleRequest, InsufficientResources


class NoLog:
    """A logger that drops everything: the log of pools that were given none."""

    def _drop(self, *args, **kwargs):
        pass

    debug = info = notice = warning = error = critical = alert = emerg = _drop


NO_LOG = NoLog()


class ResourcePoolImplementation:
    """Base of pool implementations, one per version of R.

    An implementation has the attributes below and the methods of
    :class:`~flux.resource.ResourcePool.ResourcePool`, whose documentation is
    theirs; ``alloc()`` and ``copy()`` answer with an implementation.  Methods
    that are not defined here must come from the subclass.
    :class:`~flux.resource.Rv1Pool.Rv1Pool` is the one to derive from.

    Attributes:
        version (int): the version of R it reads.
        name (str): what the scheduler's ready line calls it.
        known_options (frozenset): keyword arguments it understands.
        generation (int): up by one at every mutation.
        releases (int): up by one whenever a request that did not fit may fit:
            something was freed, came up, or other properties were set.
        log: object with ``debug()``, ``info()`` and so on, of the scheduler.
        clock: callable returning the time, in seconds since the epoch.
    """

    version = None
    name = "ResourcePool"
    known_options = frozenset()
    generation = 0
    releases = 0
    log = NO_LOG
    clock = staticmethod(time.time)

    InsufficientResources = InsufficientResources
    InfeasibleRequest = InfeasibleRequest

    def alloc(self, jobid, request):
        raise NotImplementedError(f"{type(self).__name__}.alloc")

    def free(self, jobid, R=None, final=False):
        raise NotImplementedError(f"{type(self).__name__}.free")

    def parse_resource_request(self, jobspec):
        raise NotImplementedError(f"{type(self).__name__}.parse_resource_request")

    def to_dict(self):
        raise NotImplementedError(f"{type(self).__name__}.to_dict")
