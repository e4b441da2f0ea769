"""The handle and the watchers, under the names they have in the host's bindings."""

import importlib


def __getattr__(name):
    # `import flux` and any part of flux.core make the others usable, as on a real Flux.
    if name in ("handle", "inner", "watchers"):
        return importlib.import_module(f"flux.core.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
