"""Finding a pool class by name, as in ``pool-class=`` and ``R.scheduling.writer``."""

import importlib
import re

from flux.resource.ResourcePool import ResourcePool
from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_-]{0,63}){0,7}")
_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_found = {}


def pool_class_from_uri(uri):
    """Find a pool class.

    Args:
        uri (str): ``module``: its ``pool_class``; or ``module:Class``. ``-``
            reads as ``_``; a name without a dot is also looked for in
            ``flux.resource``.

    Returns:
        A subclass of ResourcePool or ResourcePoolImplementation, or None: not a
        dotted name, not importable, no such attribute, or not a pool class.
        What is found is remembered; what is not is tried again next time.
    """
    if not isinstance(uri, str):
        return None
    pool_class = _found.get(uri)
    if pool_class is not None:
        return pool_class
    module_name, colon, attribute = uri.partition(":")
    attribute = attribute if colon else "pool_class"
    # R may come from anybody: only what looks like a module's name is imported.
    if not _NAME.fullmatch(module_name) or not _ATTRIBUTE.fullmatch(attribute):
        return None
    module_name = module_name.replace("-", "_")
    names = [module_name]
    if "." not in module_name:
        names.append("flux.resource." + module_name)
    for name in names:
        try:
            module = importlib.import_module(name)
        except Exception:
            # A module may fail in any way while it is imported.
            continue
        pool_class = getattr(module, attribute, None)
        if isinstance(pool_class, type) and issubclass(
            pool_class, (ResourcePool, ResourcePoolImplementation)
        ):
            _found[uri] = pool_class
            return pool_class
    return None


def writer_of(R):
    """The ``scheduling.writer`` of an R object; ``fluxion`` if it names none."""
    scheduling = R.get("scheduling") if isinstance(R, dict) else None
    writer = scheduling.get("writer") if isinstance(scheduling, dict) else None
    return writer if isinstance(writer, str) else "fluxion"
