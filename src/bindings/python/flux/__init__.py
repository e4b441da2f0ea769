# SPDX-License-Identifier: LGPL-3.0-or-later
"""Flux bindings with the schedulers and pools of this project laid over them.

With a real Flux this directory precedes the installed ``flux`` package on the
path (``FLUX_PYTHONPATH_PREPEND``): names that are here come from here, all
others from the installation.  Without one, the embedded instance supplies
the others, and nothing of a ``flux`` package that happens to be installed may
get in between: half an installation is worse than none.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
from typing import Any

_embedded = importlib.util.find_spec("flux_embedded")

if _embedded is None or _embedded.origin is None:
    __path__ = pkgutil.extend_path(__path__, __name__)
    import flux.core.handle
else:
    __path__ = [
        os.path.dirname(os.path.abspath(__file__)),
        os.path.join(os.path.dirname(os.path.dirname(_embedded.origin)), "flux"),
    ]


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
    # Programs use these after a mere `import flux`, as they can on a real Flux.
    if name in ("constants", "core", "future", "message", "rpc", "util", "wrapper"):
        return importlib.import_module(f"flux.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
