# SPDX-License-Identifier: LGPL-3.0-or-later
"""Command line options that describe a job, as in ``flux submit``, and their jobspec."""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from typing import Any

from flux.job import JobspecV1
from flux.scheduler.times import seconds_of
from flux_engine.resource.sources import read_json


def _count(text: str, least: int = 1) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(
            f"{text!r} is invalid: expected an integer, {least} or more"
        )
    return int(text)


def _time_limit(text: str) -> float:
    """Return a time limit in seconds; a number without a unit is minutes, as in ``flux submit``."""
    value: object = text
    try:
        value = float(text) * 60
    except ValueError:
        pass
    seconds = seconds_of(value)
    if seconds is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is invalid: expected minutes, or a length of time such as 90m or 4h"
        )
    return seconds


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a job; `jobspec_from_options` reads them."""
    group = parser.add_argument_group("the job, as in flux submit")
    add = group.add_argument
    add("-n", "--ntasks", type=_count, metavar="N", help="number of tasks (default: 1)")
    add("-N", "--nodes", type=_count, metavar="N", help="number of nodes for the tasks")
    add("-c", "--cores-per-task", type=_count, metavar="N", help="cores for each task (default: 1)")
    add(
        "-g",
        "--gpus-per-task",
        type=partial(_count, least=0),
        metavar="N",
        help="GPUs for each task",
    )
    add("--cores", type=_count, metavar="N", help="number of cores, instead of -n, -c and -g")
    add("--tasks-per-node", type=_count, metavar="N", help="number of tasks on each node")
    add("--tasks-per-core", type=_count, metavar="N", help="number of tasks on each core")
    add("--gpus-per-node", type=partial(_count, least=0), metavar="N", help="GPUs of each node")
    add("-x", "--exclusive", action="store_true", help="allocate whole nodes")
    add(
        "-t",
        "--time-limit",
        type=_time_limit,
        metavar="MIN|FSD",
        help="time limit: minutes, or such as 2h (default: none)",
    )
    add("-q", "--queue", metavar="NAME", help="queue of the job")
    add("-B", "--bank", metavar="NAME", help="bank that is charged")
    add("--requires", metavar="CONSTRAINT", help="constraint, such as 'bigmem and not rack:3'")
    add(
        "--setattr",
        action="append",
        default=[],
        metavar="KEY[=VALUE]",
        help="jobspec attribute; ^KEY=FILE: of a JSON file",
    )


def parse_constraint(text: str) -> dict[str, Any]:
    """Parse the text of ``--requires`` (RFC 35) to a constraint (RFC 31); a name without an operator
    is a property. Raises ValueError if the text is not a constraint."""
    from flux.constraint.parser import ConstraintParser, ConstraintSyntaxError

    class Parser(ConstraintParser):
        operator_map = {
            None: "properties",
            "host": "hostlist",
            "hosts": "hostlist",
            "rank": "ranks",
        }
        split_values = {"properties": ","}

    try:
        constraint = Parser().parse(text)
    except (ConstraintSyntaxError, SyntaxError, ValueError) as exc:
        raise ValueError(f"--requires={text!r}: {exc}") from None
    if not isinstance(constraint, dict):
        raise ValueError(f"--requires={text!r}: this is not a constraint")
    return constraint


def _with_resources(options: argparse.Namespace) -> JobspecV1:
    nodes = options.nodes
    by_task = options.ntasks or options.cores_per_task or options.gpus_per_task
    by_resource = (
        options.cores,
        options.tasks_per_node,
        options.tasks_per_core,
        options.gpus_per_node,
    )
    if options.exclusive and nodes is None:
        raise ValueError("--exclusive needs a number of nodes (-N)")
    if any(count is not None for count in by_resource):
        if by_task:
            names = "--cores, --tasks-per-node, --tasks-per-core and --gpus-per-node"
            raise ValueError(f"{names} exclude -n, -c and -g")
        if options.tasks_per_node and options.tasks_per_core:
            raise ValueError("--tasks-per-node and --tasks-per-core exclude each other")
        if options.gpus_per_node and nodes is None:
            raise ValueError("--gpus-per-node needs a number of nodes (-N)")
        return JobspecV1.per_resource(
            ["true"],
            ncores=options.cores,
            nnodes=nodes,
            gpus_per_node=options.gpus_per_node,
            exclusive=options.exclusive or (nodes is not None and options.cores is None),
            duration=options.time_limit,
        )
    ntasks = options.ntasks or nodes or 1
    if nodes is not None and ntasks < nodes:
        raise ValueError(
            f"{ntasks} tasks cannot be spread over {nodes} nodes: each node needs a task at least"
        )
    return JobspecV1.from_command(
        ["true"],
        num_tasks=ntasks,
        cores_per_task=options.cores_per_task or 1,
        gpus_per_task=options.gpus_per_task,
        num_nodes=nodes,
        # As in `flux submit`: nodes without a number of tasks are whole nodes.
        exclusive=options.exclusive or (nodes is not None and options.ntasks is None),
        duration=options.time_limit,
    )


def jobspec_from_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the jobspec (RFC 14) of a job with these options. Raises ValueError if the options
    contradict each other, or flux submit would refuse the job."""
    jobspec = _with_resources(options)
    for name in ("queue", "bank"):
        if getattr(options, name):
            jobspec.setattr(f"system.{name}", getattr(options, name))
    if options.requires:
        jobspec.setattr("system.constraints", parse_constraint(options.requires))
    for entry in options.setattr:
        key, given, text = entry.partition("=")
        value: Any = 1
        if key.startswith("^"):
            key, value = key[1:], read_json(text, "--setattr")
        elif given:
            try:
                value = json.loads(text)
            except ValueError:
                value = text
        jobspec.setattr(key, value)
    spec: dict[str, Any] = jobspec.jobspec
    spec["attributes"]["system"].pop("environment", None)
    spec["attributes"]["system"].setdefault("cwd", os.sep)
    try:
        JobspecV1(**spec)  # as flux submit checks it: hosts that the instance lacks, ...
    except (OSError, TypeError) as exc:
        raise ValueError(str(exc)) from None
    return spec
