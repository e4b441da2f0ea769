# SPDX-License-Identifier: LGPL-3.0-or-later
"""The package of the bindings. ``flux.core.handle`` is there after any import, as on a real Flux, but imported on demand."""

from __future__ import annotations

import importlib
from pkgutil import extend_path
from typing import Any

__path__ = extend_path(__path__, __name__)


def __getattr__(name: str) -> Any:
    if name == "handle":
        return importlib.import_module("flux.core.handle")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
