# SPDX-License-Identifier: LGPL-3.0-or-later
"""Resources: sets of them, pools to allocate from, and requests.

Files:

- ``ResourcePool.py``: makes a pool of R.
- ``pool/contract.py``: the methods that a pool must define; ``ResourcePoolImplementation.py``:
  those inherited by any pool with a view of its free units. Each method is documented with costs
  and exceptions.
- ``Rv1Pool.py``, ``TreePool.py``: the two pools.
- ``request.py``, ``ResourceCount.py``: a job's request, parsed from its jobspec.
- ``errors.py``: the exceptions of an allocation.
- ``allocations.py``: a check of allocations, for job managers.
- ``pool/``: parts of pools. ``plan/``: looking ahead in time. ``tree/``: the inside of nodes.
- ``hwloc/``: the topology of real machines. ``draw/``: pictures of nodes.

Interfaces:

- Schedulers and a site's pools: the classes imported below, ``TreePool``, and the parts of ``pool``
  and ``plan`` described in the guide and the reference (``doc/guide/pools.rst``,
  ``doc/reference/resource.rst``): masks, ``Placement``, ``Inventory``, ``RankIndex``, ``Plan``.
  Their names, arguments and results must not change.
- ``flux.scheduler``: the public methods of ``ResourcePool`` and ``Plan``, the exceptions,
  ``pool/masks.py``, and ``counted()`` of ``pool/explain.py``; nothing else.
- flux-core's own ``flux.resource`` lies below this package: modules that are not here come from
  there. Its command ``flux resource`` and ``flux.job`` import names from here.

All else may change: the tests in ``t/python/resource`` and ``t/python/tree`` compare pools and
plans with plain models, and with recordings of flux-core.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import extend_path
from types import ModuleType
from typing import TYPE_CHECKING, Any

__path__ = extend_path(__path__, __name__)

if TYPE_CHECKING:
    from flux.resource.errors import InfeasibleRequest, InsufficientResources
    from flux.resource.ResourceCount import ResourceCount
    from flux.resource.ResourcePool import ResourcePool
    from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
    from flux.resource.Rv1Pool import ResourceRequest, Rv1Pool

#: Lazily imported name -> module: ``flux.job``, and so every command, imports this package, and few
#: commands need pools; a scheduler needs no sets.
_ON_DEMAND = {
    "InfeasibleRequest": "errors",
    "InsufficientResources": "errors",
    "ResourceCount": "ResourceCount",
    "ResourcePool": "ResourcePool",
    "ResourcePoolImplementation": "ResourcePoolImplementation",
    "ResourceJournalConsumer": "journal",
    "ResourceRequest": "Rv1Pool",
    "ResourceSet": "ResourceSet",
    "ResourceSetImplementation": "ResourceSetImplementation",
    "ResourceStatus": "status",
    "Rv1Pool": "Rv1Pool",
    "Rv1Set": "Rv1Set",
    "SchedResourceList": "list",
    "resource_list": "list",
    "resource_status": "status",
}


class _Package(ModuleType):
    """This package: a name in `_ON_DEMAND` is a class, even after the import of the module of the
    same name, which the import system would bind."""

    def __getattr__(self, name: str) -> Any:
        if name not in _ON_DEMAND:
            if name in _ON_DEMAND.values():  # a module: there after any import of the package
                return import_module(f"{self.__name__}.{name}")
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{self.__name__}.{_ON_DEMAND[name]}"), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _ON_DEMAND and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_ON_DEMAND})


sys.modules[__name__].__class__ = _Package
