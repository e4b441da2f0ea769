# SPDX-License-Identifier: LGPL-3.0-or-later
"""Ranks: which of the pending jobs of equal priority is asked first whether it can start.

A rank is a number, the smallest goes first. `RANKS` has the formulas by the names that ``rank=``
and ``candidates=`` of sched-backfill take. With w, how long a job has waited, and e, how long it is
expected to run, both in seconds, n, the cores it asks for, and s, the seconds from the first
submission that the scheduler knows of to the job's, plus 1:

===========  ==========================================  ======================================================
fcfs         0                                           first come, first served
shortest     e                                           shortest job first
area         e n                                         smallest area (node-seconds) first
expansion    -(w + e) / e                                the largest expansion factor, or slowdown, first
wfp3         -(w / e)^3 n                                as on Intrepid (Tang et al. 2009)
unicef       -w / (log2(max(n, 2)) e)                    small and short jobs (Tang et al. 2009)
f1           log10(e) n + 870 log10(s)                   f1 to f4: found by regression over simulations
f2           sqrt(e) n + 25600 log10(s)                  (Carastan-Santos and de Camargo 2017)
f3           e n + 6860000 log10(s)
f4           e sqrt(n) + 530000 log10(s)
===========  ==========================================  ======================================================

A rank in which w counts changes as time passes: the order has to be found anew in each pass.
"""

from __future__ import annotations

import importlib.util
from math import isnan, log2, log10, sqrt
from pathlib import Path
from typing import Any, Callable

#: Gives a rank of (w, e, n, s).
Formula = Callable[[float, float, int, float], float]

RANKS: dict[str, Formula] = {
    "fcfs": lambda w, e, n, s: 0.0,
    "shortest": lambda w, e, n, s: e,
    "area": lambda w, e, n, s: e * n,
    "expansion": lambda w, e, n, s: -(w + e) / e,
    "wfp3": lambda w, e, n, s: -((w / e) ** 3) * n,
    "unicef": lambda w, e, n, s: -w / (log2(max(n, 2)) * e),
    "f1": lambda w, e, n, s: log10(e) * n + 870 * log10(s),
    "f2": lambda w, e, n, s: sqrt(e) * n + 25600 * log10(s),
    "f3": lambda w, e, n, s: e * n + 6860000 * log10(s),
    "f4": lambda w, e, n, s: e * sqrt(n) + 530000 * log10(s),
}


def usable(rank: Any) -> float:
    """`rank` as a number that can be compared; what a function gave that is none ranks last."""
    if isinstance(rank, (int, float)) and not isnan(rank):
        return rank
    return float("inf")


def function_of_file(option: str, text: str, check_owner: bool = True) -> Callable[..., Any]:
    """The function that an argument names as ``FILE:FUNCTION``.

    Args:
        option (str): the argument's name, for errors
        text (str): its value: path of a Python file, a colon, the name of a function in it
        check_owner (bool): whether the file has to be one that nobody but the instance owner and root
            could have written (`flux.jobtap.owned_file`); not in a simulation, which runs as its user

    Raises:
        ValueError: there is none, or the file cannot be read, or may not be run
    """
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name.isidentifier():
        raise ValueError(f"{option}={text!r} is invalid: expected FILE:FUNCTION")
    # Not at the top: few schedulers run a file.
    from flux.jobtap.owned_file import PermissionRefused, read_owned

    try:
        source = read_owned(path) if check_owner else Path(path).read_bytes()
        spec = importlib.util.spec_from_loader(Path(path).stem, loader=None, origin=path)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        module.__file__ = path
        exec(compile(source, path, "exec"), module.__dict__)
    except PermissionRefused as exc:
        raise ValueError(f"{option}={text!r}: {exc}") from None
    except Exception as exc:
        raise ValueError(f"{option}={text!r}: {type(exc).__name__}: {exc}") from exc
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{option}={text!r}: no function {name} in {path}")
    return function  # type: ignore[no-any-return]
