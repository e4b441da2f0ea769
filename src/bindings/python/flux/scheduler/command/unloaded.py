# SPDX-License-Identifier: LGPL-3.0-or-later
"""Checks of a configuration by a scheduler among fake services: its tables where no instance runs, and
the arguments of schedulers, which an instance reads only at its start."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from flux.scheduler.testing.instance import MODULES, FakeInstance
from flux_engine.formats.rset import RSet
from flux_engine.resource.sources import from_config


def answer_without_instance(request: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer to ``sched.check-config`` of a scheduler with the nodes of the checked
    configuration; None if it has no resources. Raises ValueError if these are invalid."""
    R = from_config(request["config"])
    if R is None:
        return None
    RSet(R)
    instance = FakeInstance(R=R, start_time=time.time())
    instance.load("sched-fifo")
    answer: dict[str, Any] = instance.request("sched.check-config", request)
    return answer


class _Constructed(BaseException):
    """The scheduler took its arguments."""


class _Construction(FakeInstance):
    def scheduler_runs(self, scheduler: Any) -> None:
        raise _Constructed


def _refusal(path: Path, args: list[str], config: dict[str, Any]) -> str | None:
    """Return the error of a scheduler that refuses its arguments, or None. The scheduler is made on
    a fake handle, and not run."""
    try:
        _Construction(config=config).load(path, *args)
    except _Constructed:
        return None
    except Exception as exc:
        return str(exc) if isinstance(exc, ValueError) else f"{type(exc).__name__}: {exc}"
    return None


def faults(config: dict[str, Any], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each scheduler in ``[modules]`` that is probably misspelled, or would refuse
    its arguments. Schedulers of the library and of FLUX_MODULE_PATH_PREPEND are known."""
    modules = config.get("modules")
    if not isinstance(modules, dict):
        return
    known = [path.name for path in MODULES.glob("sched-*")]
    dirs = [Path(text) for text in environ.get("FLUX_MODULE_PATH_PREPEND", "").split(":") if text]
    alternatives = modules.get("alternatives")
    chosen = alternatives.get("sched") if isinstance(alternatives, dict) else None
    for name in dict.fromkeys([chosen, *(name for name in modules if name.startswith("sched-"))]):
        if not isinstance(name, str):
            continue
        files = [directory / f"{name}.py" for directory in (*dirs, MODULES / name)]
        path = next(filter(Path.is_file, files), None)
        if path is None:
            near = get_close_matches(name, known, 1, 0.8)
            if near:
                yield f"configuration: [modules] there is no {name!r}: is {near[0]!r} meant?"
            continue
        table = modules.get(name, {})
        args = table.get("args", []) if isinstance(table, dict) else table
        if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
            yield f"configuration: [modules] {name}.args={args!r}: expected an array of texts"
            continue
        text = _refusal(path, args, config)
        if text is not None:
            yield f"configuration: [modules] {name}.args: {text}"
