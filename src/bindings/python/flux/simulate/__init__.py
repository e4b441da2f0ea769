# SPDX-License-Identifier: LGPL-3.0-or-later
"""Run recorded or synthetic jobs through unmodified schedulers, on a virtual clock: the API behind
``flux simulate``, for programs and notebooks.

    from flux.simulate import Trace, simulate

    runs = simulate(Trace("jobs.swf", jobs=2000), ["sched-fifo", "sched-backfill reservations=1,4"])
    runs.figures        # one row per run: a DataFrame if pandas is installed, else a list of dicts
    runs[1].jobs        # one row per job
    runs.report("report.html")

Schedulers run on `flux_engine` and the bindings in Python (``_flux``). This requires greenlet and
the two directories that `flux python` adds to the path: the one with these bindings, and
``embedded`` beside it. Only ``engine="instance"`` needs the embedded instance.
"""

from __future__ import annotations

import importlib
from typing import Any

#: Version of the output formats, recorded in the provenance of results.
__version__ = "1"

_MODULES = {
    "OptionError": "workload.record",
    "Run": "study",
    "Runs": "study",
    "Trace": "trace",
    "Tuning": "tuning",
    "simulate": "study",
    "tune": "tuning",
}
__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    # Imported on demand: the command needs few of them, and most only to run something.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] not in ("_flux", "greenlet"):
            raise
        raise ImportError(
            f"flux.simulate: no module {exc.name}: it takes the bindings in Python (the directory 'embedded' in PYTHONPATH)"
            " and a Python with greenlet; 'flux python' of the embedded instance has both"
        ) from None
