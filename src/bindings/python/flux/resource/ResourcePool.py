# SPDX-License-Identifier: LGPL-3.0-or-later
"""The class that makes a pool of R, with the implementation for its version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.inventory import Selection
from flux.resource.pool.masks import quote
from flux.resource.request import load_json
from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
from flux.resource.Rv1Pool import NOT_INHERITED, Rv1Pool

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ("ResourcePool", "InfeasibleRequest", "InsufficientResources")


class ResourcePool(ResourcePoolImplementation):
    """A pool of resources to allocate to jobs, independent of the version of R.

    A pool is a single object, of its own class and the implementation's: attributes of the class
    override those of the implementation, and ``super()`` calls the latter.

    Args:
        arg: an R object (dict) or its JSON text, an implementation to take over (both then are one
            pool), or None for an empty pool.
        version (int): version of R of an empty pool.
        log: logger for the implementation; default: no logging.
        kwargs: options for the implementation (its ``known_options``).

    Raises:
        ValueError: R is malformed or of an unknown version; the text says where.
        TypeError: ``arg`` is of another type.

    A subclass lists its implementations in ``_impl_map``, by version of R. ``alloc()``,
    ``alloc_on()`` and ``copy()`` return an object of the same class with the same attributes,
    without calling its ``__init__``.
    """

    _impl_map: dict[Any, type[ResourcePoolImplementation]] = {1: Rv1Pool}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        implementations = {*cls.__dict__.get("_impl_map", {}).values()}
        if len(implementations) == 1:
            cls.__bases__ += _bases(*implementations)
        super().__init_subclass__(**kwargs)

    def __init__(self, arg: Any = None, version: Any = 1, log: Any = None, **kwargs: Any) -> None:
        if isinstance(arg, ResourcePoolImplementation) and not isinstance(arg, ResourcePool):
            self.__class__ = _implemented(type(self), type(arg))
            arg.__dict__.update(self.__dict__)
            self.__dict__ = arg.__dict__
            if log is not None:
                self.log = log
            return
        if isinstance(arg, (str, bytes)):
            arg = load_json(arg, "R")
            if not isinstance(arg, dict):
                raise ValueError(f"R must be an object, got {quote(arg)}")
        if isinstance(arg, dict):
            version = arg.get("version")
        elif arg is not None:
            raise TypeError(f"ResourcePool: expected R, got {type(arg).__name__}")
        try:
            impl_class = None if isinstance(version, bool) else self._impl_map.get(version)
        except TypeError:
            impl_class = None
        if impl_class is None:
            raise ValueError(f"R version {quote(version)} not supported by {type(self).__name__}")
        self.__class__ = _implemented(type(self), impl_class)
        super().__init__(arg, log=log, **kwargs)

    @classmethod
    def of_instance(cls, R: dict[str, Any], **kwargs: Any) -> Self:
        """Return the pool of an instance, whose R (RFC 20) lacks the ranks that are excluded from
        scheduling (``resource.exclude``) or have left. `kwargs`: those of the constructor."""
        return cls(R, **kwargs)

    @property
    def impl(self) -> ResourcePoolImplementation:
        """The pool as an object of its implementation: itself."""
        return self

    def _check(self) -> None:
        self.check()


class _Adopting(ResourcePoolImplementation):
    """Adapts an implementation that may return objects of another class."""

    def alloc(self, jobid: int, request: Any) -> Self:
        return self._adopted(super().alloc, jobid, request)

    def grant(self, jobid: int, request: Any, selection: Selection, nslots: int) -> Self:
        return self._adopted(super().grant, jobid, request, selection, nslots)

    def copy(self) -> Self:
        return self._adopted(super().copy)

    def _adopted(self, make: Callable[..., Any], *args: Any) -> Self:
        """Return the pool made by a method of the implementation as an object of this class, with
        its attributes."""
        impl = make(*args)
        if isinstance(impl, ResourcePool):
            return impl  # type: ignore[return-value]
        if not isinstance(impl, ResourcePoolImplementation):
            raise TypeError(f"{make.__qualname__}() returned {quote(impl)}: expected a pool")
        new = object.__new__(type(self))
        own = vars(impl)
        for name, value in vars(self).items():
            # An attribute defined by the implementation's class is the implementation's own.
            if name not in NOT_INHERITED and not hasattr(type(impl), name):
                own.setdefault(name, value)
        new.__dict__ = own
        return new


def _bases(impl_class: type) -> tuple[type, ...]:
    """Return the further bases of a pool's class with another class as implementation."""
    # These methods of Rv1Pool return objects of the pool's own class.
    makers = (Rv1Pool.alloc, Rv1Pool.grant, Rv1Pool.copy)
    if all(getattr(impl_class, one.__name__) is one for one in makers):
        return (impl_class,)
    return (_Adopting, impl_class)


def _implemented(cls: type, impl_class: type) -> type:
    """Return `cls`, or a class of the same name derived from it and the implementation's class."""
    if issubclass(cls, impl_class):
        return cls
    made: dict[type, type] | None = cls.__dict__.get("_classes")
    if made is None:
        made = cls._classes = {}  # type: ignore[attr-defined]
    if impl_class not in made:
        members = {"__module__": cls.__module__, "__doc__": cls.__doc__}
        adopts = cls is ResourcePool and impl_class is not Rv1Pool
        name = impl_class.__name__ if adopts else cls.__name__
        made[impl_class] = type(name, (cls, *_bases(impl_class)), members)
    return made[impl_class]
