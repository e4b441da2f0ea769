# SPDX-License-Identifier: LGPL-3.0-or-later
"""Flux bindings with the schedulers and pools of this project laid over them.

This directory precedes the one with flux-core's own ``flux`` package: names that are here come from here, all others from
there.  On a real Flux that is the installed package, found along the path (``FLUX_PYTHONPATH_PREPEND`` puts this directory
first).  Without a Flux it is the package ``flux-python``, which scripts/flux-python fetches, on this project's
own ``_flux``; that one says where it is, and no ``flux`` that happens to be installed may get in between.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from typing import Any

_spec = importlib.util.find_spec("_flux")
# That of flux-core is made of C libraries: it has no such file.
if not (
    _spec
    and _spec.origin
    and os.path.exists(os.path.join(os.path.dirname(_spec.origin), "ctype.py"))
):
    __path__ = pkgutil.extend_path(__path__, __name__)
else:
    _directory: str = importlib.import_module("_flux").bindings()
    __path__ = [os.path.dirname(os.path.abspath(__file__)), os.path.join(_directory, "flux")]
    # Other packages that it imports lie beside it.
    sys.path.append(_directory)


def Flux(*args: Any, **kwargs: Any) -> Any:
    """Return a handle on the instance that ``FLUX_URI`` names.

    Inside a broker module of the embedded instance it is the module's own.
    The handle is a ``flux.core.handle.Flux``.

    Raises:
        OSError: no instance can be reached.
    """

    import flux.core.handle

    return flux.core.handle.Flux(*args, **kwargs)


def __getattr__(name: str) -> Any:
    # Programs use these after a mere `import flux`, as they can on a real Flux. Most of them take long to import, and a
    # simulation needs none.
    if name in ("constants", "core", "future", "message", "rpc", "util", "wrapper"):
        importlib.import_module("flux.core.handle")
        return sys.modules[f"flux.{name}"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
