# SPDX-License-Identifier: LGPL-3.0-or-later
"""Command line options that describe a job, and the jobspec that ``flux submit`` makes of them."""

from __future__ import annotations

import argparse
from typing import Any

from flux.cli.submit import SubmitCmd
from flux.job import JobspecV1

#: Name -> letter, placeholder of the value (None: there is none), help.
_OPTIONS = {
    "ntasks": ("n", "N", "number of tasks (default: 1)"),
    "nodes": ("N", "N", "number of nodes for the tasks"),
    "cores-per-task": ("c", "N", "cores for each task (default: 1)"),
    "gpus-per-task": ("g", "N", "GPUs for each task"),
    "cores": ("", "N", "number of cores, instead of -n, -c and -g"),
    "tasks-per-node": ("", "N", "number of tasks on each node"),
    "tasks-per-core": ("", "N", "number of tasks on each core"),
    "gpus-per-node": ("", "N", "GPUs of each node"),
    "exclusive": ("x", None, "allocate whole nodes"),
    "time-limit": ("t", "MIN|FSD", "time limit: minutes, or such as 2h (default: none)"),
    "queue": ("q", "NAME", "queue of the job"),
    "bank": ("B", "NAME", "bank that is charged"),
    "requires": ("", "CONSTRAINT", "constraint, such as 'bigmem and not rack:3'"),
    "setattr": ("", "KEY[=VALUE]", "jobspec attribute; ^KEY=FILE: of a JSON file"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a job; `jobspec_from_options` reads them."""
    group = parser.add_argument_group("the job, as in flux submit")
    for name, (letter, metavar, text) in _OPTIONS.items():
        how: dict[str, Any] = {"action": "store_true"} if metavar is None else {"metavar": metavar}
        if name in ("requires", "setattr"):
            how["action"] = "append"
        group.add_argument(*[f"-{letter}"] * bool(letter), f"--{name}", help=text, **how)


def jobspec_from_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the jobspec (RFC 14) of a job with these options, or some of them. Raises ValueError if
    flux submit would refuse them."""
    submit = SubmitCmd("flux submit")
    given = submit.get_parser().parse_args(["true"])
    for name in _OPTIONS:
        key = name.replace("-", "_")
        setattr(given, key, getattr(options, key, None))
    try:
        spec: dict[str, Any] = submit.jobspec_create(given).jobspec
        JobspecV1(**spec)  # as flux submit checks it: hosts that the instance lacks, ...
    except (OSError, TypeError, ValueError) as exc:
        raise ValueError(f"flux submit would refuse the job: {exc}") from None
    del spec["attributes"]["system"]["environment"]
    return spec
