# SPDX-License-Identifier: LGPL-3.0-or-later
"""Recorded or invented jobs through unchanged schedulers, under a virtual clock: from a program or a notebook, and as the
command ``flux simulate``, which is built on the same functions.

    from flux.simulate import Trace, simulate

    runs = simulate(Trace("jobs.swf", jobs=2000), ["sched-fifo", "sched-backfill reservations=1,4"])
    runs.figures        # a line a run: a DataFrame where pandas is installed, else a list of dicts
    runs[1].jobs        # a line a job
    runs.report("report.html")

A call goes through these files, in this order:

- `command`, `study`: the command and the API; `arguments`, `policy`: their options
- `trace`, `workload`: readers of traces, models, and the jobs that are made of them; `machine`: the resources they run on
- `run`: policies side by side in processes of this program, or as jobs of an instance (`as_jobs`)
- `engine`: plays the job manager and the resource service, or runs a whole instance; `script`, `outages`: events besides the jobs
- `failure`, `refusals`: whether a run may be compared with others
- `results`, `report`: files, figures, tables and the page about them; `origin`: their provenance

Beside these: `checking` (with `site_check`, `placement_check`), `comparing`, `again`, `tuning`, `gym`, `live` (the running instance) and `odds`.

Schedulers run on `flux_engine` and on the bindings in Python (``_flux``), so it takes a Python with greenlet and the two directories
that `flux python` puts on the path: where these bindings are, and ``embedded`` beside them. Only ``engine="instance"`` takes the
embedded instance.
"""

from __future__ import annotations

import importlib
from typing import Any

#: Of the formats that are written; goes into the provenance of results.
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
    # Imported when asked for: the command needs few of them, and most only if it runs anything.
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
