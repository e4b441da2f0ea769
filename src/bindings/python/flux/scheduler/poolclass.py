"""Which class of pool a scheduler uses."""

import importlib
import inspect
import re

from flux.resource.ResourcePool import ResourcePool
from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation

#: A dotted name, optionally a class in it. R is not always trusted: nothing else is imported.
_URI = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*(:[A-Za-z_]\w*)?", re.ASCII)

#: An R without a writer was written by this one (RFC 20), which is no pool of ours.
DEFAULT_WRITER = "fluxion"

_found = {}


def _pool_class_from_uri(uri):
    """Find the pool class that ``module`` (its `pool_class`) or ``module:Class`` names.

    A ``-`` reads as ``_``, and a name without a dot is also looked for in `flux.resource`.

    Returns:
        what was found, or None if there is no such module or attribute. What was found is
        remembered, a failure is not.
    """
    if not isinstance(uri, str) or len(uri) > 255 or not _URI.fullmatch(uri):
        return None
    if uri in _found:
        return _found[uri]
    name, _, attribute = uri.partition(":")
    name = name.replace("-", "_")
    candidates = [name] if "." in name else [name, "flux.resource." + name]
    for candidate in candidates:
        try:
            module = importlib.import_module(candidate)
        except Exception:  # a module may fail to import in any way it likes
            continue
        found = getattr(module, attribute or "pool_class", None)
        if found is not None:
            _found[uri] = found
            return found
    return None


def _pool_class_from_writer(writer):
    """Find the pool class that ``R.scheduling.writer`` names, or None.

    Args:
        writer (str or dict): a URI whose scheme names the scheduler that wrote R (RFC 20), or the R
    """
    if isinstance(writer, dict):
        scheduling = writer.get("scheduling")
        writer = scheduling.get("writer") if isinstance(scheduling, dict) else None
    if writer is None:
        writer = DEFAULT_WRITER
    if not isinstance(writer, str):
        return None
    found = _pool_class_from_uri(writer)
    if found is None and ":" in writer:
        found = _pool_class_from_uri(writer.partition(":")[0])
    return found if is_pool_class(found) else None


def is_pool_class(found):
    """Whether `found` is a class that a scheduler can make its pool of."""
    return isinstance(found, type) and issubclass(found, (ResourcePool, ResourcePoolImplementation))


def check_pool_class(found):
    """Return `found`.

    Raises:
        ValueError: it is no class of pools
    """
    if not is_pool_class(found):
        raise ValueError(
            f"pool_class must be a ResourcePool or ResourcePoolImplementation subclass, got {found!r}"
        )
    return found


def choose(scheduler, R):
    """The class of pool for inventory `R`: the configured one, else R's writer's, else the default."""
    if scheduler.pool_class is not None:
        return check_pool_class(scheduler.pool_class)
    scheduling = R.get("scheduling")
    if not isinstance(scheduling, dict):
        return ResourcePool
    writer = scheduling.get("writer")
    found = _pool_class_from_writer(writer)
    if found is None:
        if writer is not None and str(writer).partition(":")[0] != DEFAULT_WRITER:
            scheduler.log.info(
                f"R.scheduling.writer={writer!r}: no pool class of that name, using the default"
            )
        return ResourcePool
    return found


def known_options(cls, version):
    """The keyword arguments that a pool of class `cls` takes for R of this version."""
    known = getattr(cls, "known_options", ())
    if isinstance(known, property):  # a wrapper's are those of what it wraps
        known = getattr(getattr(cls, "_impl_map", {}).get(version), "known_options", ())
    return set(known) | _named_by_constructor(cls)


def _named_by_constructor(cls):
    """What a class can be given by keyword, beside what every pool is given."""
    if cls.__init__ in (ResourcePool.__init__, ResourcePoolImplementation.__init__):
        return set()
    parameters = list(inspect.signature(cls).parameters.values())[1:]
    return {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} - {
        "version",
        "log",
    }


def make_pool(scheduler, R):
    """Make the pool for inventory `R` (an R dict, RFC 20).

    Raises:
        ValueError: the class cannot use this R
    """
    cls = choose(scheduler, R)
    wrapped = issubclass(cls, ResourcePoolImplementation)
    known = known_options(cls, R.get("version"))
    options = {}
    for key, value in scheduler.pool_kwargs.items():
        if key in known:
            options[key] = value
        else:
            scheduler.log.warning(f"pool_kwargs: {cls.__name__} does not know {key!r}, ignored")
    pool = cls(R, log=scheduler.log, **options)
    if wrapped:
        pool = ResourcePool(pool)
    pool.clock = scheduler.now
    return pool
