# SPDX-License-Identifier: LGPL-3.0-or-later
"""The class that makes a pool of R, by the implementation for its version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.masks import quote
from flux.resource.pool.rv1 import load_json
from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
from flux.resource.Rv1Pool import NOT_INHERITED, Rv1Pool

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.pool.inventory import Selection

__all__ = ("ResourcePool", "InfeasibleRequest", "InsufficientResources")


class ResourcePool(ResourcePoolImplementation):
    """A pool of resources that jobs are allocated from, by whichever version of R it was made of.

    A pool is one object, of its own class and of the implementation's: attributes of the class override
    those of the implementation, and ``super()`` calls the latter.

    Args:
        arg: an R object (dict) or its JSON text, an implementation to take over (both objects are
            one pool then), or None for an empty pool.
        version (int): version of R of an empty pool.
        log: logger for the implementation; default: nothing is logged.
        kwargs: options for the implementation (its ``known_options``).

    Raises:
        ValueError: R is of an unknown version, or malformed; the text says where.
        TypeError: ``arg`` is none of the above.

    A subclass lists its implementations in ``_impl_map``, by version of R. ``alloc()``,
    ``alloc_on()`` and ``copy()`` return an object of the same class with the same attributes; its
    ``__init__`` is not called for that.
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

    @property
    def impl(self) -> ResourcePoolImplementation:
        """The pool as an object of its implementation: itself."""
        return self

    def _check(self) -> None:
        self.check()


class _Adopting(ResourcePoolImplementation):
    """Between a pool's class and an implementation that may return objects of another class."""

    def alloc(self, jobid: int, request: Any) -> Self:
        return self._adopted(super().alloc(jobid, request))

    def grant(self, jobid: int, request: Any, selection: Selection, nslots: int) -> Self:
        return self._adopted(super().grant(jobid, request, selection, nslots))

    def copy(self) -> Self:
        return self._adopted(super().copy())

    def _adopted(self, impl: Any) -> Self:
        """Return a pool that an implementation made as an object of this class, with its attributes."""
        if isinstance(impl, ResourcePool):
            return impl  # type: ignore[return-value]
        new = object.__new__(type(self))
        own = vars(impl)
        for name, value in vars(self).items():
            # An attribute that the implementation's class defines is the implementation's own.
            if name not in NOT_INHERITED and not hasattr(type(impl), name):
                own.setdefault(name, value)
        new.__dict__ = own
        return new


def _bases(impl_class: type) -> tuple[type, ...]:
    """Return the further bases of a pool's class that is to be implemented by another one."""
    # These methods of Rv1Pool return objects of the pool's own class.
    makers = (Rv1Pool.alloc, Rv1Pool.grant, Rv1Pool.copy)
    if all(getattr(impl_class, one.__name__) is one for one in makers):
        return (impl_class,)
    return (_Adopting, impl_class)


def _implemented(cls: type, impl_class: type) -> type:
    """`cls`, or if it is not of an implementation's class, one that is, of the same name."""
    if issubclass(cls, impl_class):
        return cls
    made: dict[type, type] | None = cls.__dict__.get("_classes")
    if made is None:
        made = cls._classes = {}  # type: ignore[attr-defined]
    if impl_class not in made:
        members = {"__module__": cls.__module__, "__doc__": cls.__doc__}
        made[impl_class] = type(cls.__name__, (cls, *_bases(impl_class)), members)
    return made[impl_class]
