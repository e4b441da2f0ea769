# SPDX-License-Identifier: LGPL-3.0-or-later
"""Recorded jobs through unchanged schedulers, from a program or a notebook.

    from flux.simulate import Trace, simulate

    runs = simulate(Trace("jobs.swf", jobs=2000), ["sched-fifo", "sched-backfill reservations=1,4"])
    runs.figures        # a line a run: a DataFrame where pandas is installed, else a list of dicts
    runs[1].jobs        # a line a job
    runs.report("report.html")

``flux simulate`` is built on the same functions. The jobs run on the embedded instance in processes of this
program, so it takes a Python with greenlet, and the two directories that `flux python` puts on the path: where these
bindings are, and ``embedded`` beside them.
"""

from __future__ import annotations

try:
    from flux_embedded.simulate.study import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        Run,
        Runs,
        simulate,
    )
    from flux_embedded.simulate.trace import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        Trace,
    )
    from flux_embedded.simulate.tuning import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        Tuning,
        tune,
    )
    from flux_embedded.simulate.workload.record import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        OptionError,
    )
except ModuleNotFoundError as exc:
    if exc.name is None or exc.name.partition(".")[0] not in ("flux_embedded", "greenlet"):
        raise
    raise ImportError(
        f"flux.simulate: no module {exc.name}: it takes the embedded instance (its directory"
        " 'embedded' in PYTHONPATH) and a Python with greenlet; 'flux python' of the embedded instance has both"
    ) from None

__all__ = ["OptionError", "Run", "Runs", "Trace", "Tuning", "simulate", "tune"]
