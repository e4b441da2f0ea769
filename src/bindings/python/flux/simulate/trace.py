# SPDX-License-Identifier: LGPL-3.0-or-later
"""`Trace`: recorded or synthetic jobs, their machine, and the options that a study varies."""

import csv
import datetime
import itertools
import math
import numbers
import os
import shutil
import tempfile
import weakref
from collections.abc import Collection
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Optional

from flux.resource.pool.amount_kinds import read_amount
from flux.simulate.job import with_userids
from flux.simulate.machine import Machine
from flux.simulate.workload.build import Workload, build
from flux.simulate.workload.columns import COLUMNS
from flux.simulate.workload.record import OptionError, TraceError, check_count
from flux_engine.formats.config import load_path
from flux_engine.formats.dotted import lookup_path
from flux_engine.resource import sources

#: Name of the included trace.
SAMPLE = "sample"

#: Default of the maximum shift of a shaken submission, in seconds.
SHAKE = 30.0

#: Options that may have several values, in the order in which they are combined.
SWEPT = ("nodes", "limits", "scale_arrivals")
#: Key of a configuration that does not apply as in an instance -> how it does.
APPLIED = {
    "modules.sched-backfill.args": "arguments are those of --scheduler alone",
    "policy.limits": "only --engine=instance refuses jobs by them",
    "policy.jobspec.defaults.system.duration": "only --engine=instance ends jobs by it",
}
#: Tables whose entries follow the calendar.
CALENDARS = {"budgets", "reservations", "sched-budgets", "sched-reservations"}


def sample_path():
    """Return the path of the sample trace."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "sample.swf")


def machine_of(R, config, source):
    """Return the `Machine` of a resource set (RFC 20) or its file, or of the configuration `source`; None if neither has
    one. Raises ValueError if it cannot be read, OptionError if there are two."""
    configured = sources.from_config(config)
    if R is None:
        return None if configured is None else Machine(configured, source)
    if configured is not None:
        raise OptionError("R and the resource.config of the configuration: give one of them")
    if not isinstance(R, str):
        return Machine(R, "as given")
    content = sources.read_json(R, "R")
    try:
        return Machine(content, R)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"{R}: no resource set: {exc}") from None


@dataclass
class Case:
    """One workload of a study.

    Attributes:
        workload (Workload): jobs and machine
        seed (int or None): seed of the workload, if the study has several
        variant (dict): option -> value, for the options that the study varies
        place (int): index in the study
        drawn (int): seed of all random numbers of the run, including the policy's
    """

    workload: Workload
    seed: Optional[int]
    variant: dict
    place: int = 0
    drawn: int = 1

    @property
    def directory(self):
        """Directory of its results below the study's; "" if there is only one case."""
        slug = variant_text(self.variant).replace(" ", "_").replace("=", "-")
        return os.path.join(slug, "" if self.seed is None else f"seed-{self.seed}").rstrip("/")

    @property
    def label(self):
        """Name of the workload in its study."""
        return case_text(variant_text(self.variant), self.seed)


def case_text(variant, seed):
    """Return the name of a workload in its study, of the text of its variant and its seed (None: the study has one)."""
    return ", ".join(filter(None, [variant, "" if seed is None else f"seed {seed}"]))


def variant_text(variant):
    """Format a variant: ``nodes=64 scale-arrivals=0.8``."""
    return " ".join(f"{key.replace('_', '-')}={value}" for key, value in variant.items())


class Trace:
    """Jobs and their machine.

    Args:
        files (str, pandas.DataFrame or list of dict): traces, merged into one workload;
            ``"sample"`` is the included one. Tables have the columns of files
            (doc/guide/comparing.rst, *Columns of a table*)
        model (str): generate jobs with a model instead: ``lublin[:PARAMETER=VALUE,...]``
        format (str): format of the files: ``auto``, ``swf``, ``sacct``, ``flux``, ``accounting``,
            ``batsim``, ``csv``
        R (dict, str or path): the machine as a resource set (RFC 20), or its file
        config (dict, str or path): the configuration, or its TOML file: ``resource.config``, ``queues``
        nodes, cores_per_node, gpus_per_node (int): a machine of equal nodes; default: that of the trace
        memory_per_node (str): memory of each node, as in ``[amounts]`` of the configuration; memory
            is then counted
        unit (str): unit of sizes, ``node`` or ``core``; default: from the trace
        limits (str): ``trace``, ``run`` (the run time), or ``xF``: F times that
        estimates (str): limits for jobs without one: ``none``, ``run``, ``f:F``, ``tsafrir``
        window (str): ``DAYS``, ``FROM-TO`` in days, or ``DATE/DATE``
        jobs (int): number of jobs, from the first on
        scale_arrivals (float): factor for the times between submissions
        seed (int): seed of all random numbers, including policies'
        shake (float): maximum shift of submissions, in seconds
        dependencies (bool): whether jobs wait for the jobs that they follow in the trace
        status (collection of int): SWF statuses of the jobs to include; default: all, with a warning
            if some failed or were cancelled

    ``nodes``, ``limits`` and ``scale_arrivals`` may be lists: a study runs all combinations.

    Raises:
        OptionError: an option is invalid, or conflicts with another
        ValueError: a file cannot be read
    """

    def __init__(
        self,
        *files,
        model=None,
        format="auto",
        R=None,
        config=None,
        nodes=None,
        cores_per_node=None,
        gpus_per_node=None,
        memory_per_node=None,
        unit=None,
        limits="trace",
        estimates="none",
        window=None,
        jobs=None,
        scale_arrivals=1.0,
        seed=1,
        shake=None,
        dependencies=False,
        status=(),
    ):
        if bool(files) == bool(model):
            raise OptionError("give files of a trace, or a model")
        R, config = (os.fspath(one) if isinstance(one, os.PathLike) else one for one in (R, config))
        self._tables = {}  # path of a table's file -> type of the table
        self.files = [self._file(one) for one in files]
        self.config = load_path(config) if isinstance(config, str) else config or {}
        if not isinstance(self.config, dict):
            raise OptionError(f"config={config!r}: expected a dict, or a file")
        for name in CALENDARS & self.config.keys():  # results depend on no machine's own zone
            table = self.config[name]
            if isinstance(table, dict):
                entries = {
                    key: {"zone": "UTC", **entry} if isinstance(entry, dict) else entry
                    for key, entry in table.items()
                }
                self.config = {**self.config, name: entries}
        if memory_per_node is not None:
            try:
                read_amount(memory_per_node, in_bytes=True)
            except ValueError as exc:
                raise OptionError(f"memory_per_node={exc}") from None
            amounts = {**self.config.get("amounts", {}), "memory": memory_per_node}
            self.config = {**self.config, "amounts": amounts}
        self._counts_memory = memory_per_node is not None
        self._config_name = config if isinstance(config, str) else "of the configuration"
        self.R = R
        machine = self.machine
        if machine is not None and not (nodes is cores_per_node is gpus_per_node is None):
            text = f"nodes, cores and GPUs per node make a machine; {machine.source} is another one"
            raise OptionError(text)
        check_count("seed", seed, -math.inf, required=True)
        if not isinstance(status, Collection) or not all(
            isinstance(one, numbers.Integral) for one in status
        ):
            raise OptionError(f"status={status!r}: expected a list of SWF statuses")
        self.seed = seed
        self.shake = shake
        swept = {"nodes": nodes, "limits": limits, "scale_arrivals": scale_arrivals}
        self._swept = {
            key: list(value) for key, value in swept.items() if isinstance(value, (list, tuple))
        }
        for key, values in self._swept.items():
            if not values or len(set(values)) < len(values):
                raise OptionError(f"{key.replace('_', '-')}: expected values, each of them once")
        self._options = {
            "traces": self.files,
            "format": format,
            "model": model,
            "cores_per_node": cores_per_node,
            "gpus_per_node": gpus_per_node or 0,
            "unit": unit,
            "estimates": estimates,
            "window": window,
            "jobs": jobs,
            "dependencies": dependencies,
            "status": tuple(status),
            "memory": "memory" in self.config.get("amounts", {}),
            "exclude": self.config.get("resource", {}).get("exclude"),
            **{key: value for key, value in swept.items() if key not in self._swept},
        }

    def _file(self, one):
        if not isinstance(one, (str, os.PathLike)):
            path = file_of(one, self)
            self._tables[path] = type(one).__name__
            return path
        return sample_path() if one == SAMPLE and not os.path.exists(one) else os.fspath(one)

    @property
    def machine(self):
        """The `Machine` of R or the configuration, or None: taken from the trace."""
        return machine_of(self.R, self.config, self._config_name)

    @property
    def is_model(self):
        """Whether the jobs come from a model."""
        return bool(self._options["model"])

    @property
    def sweeps(self):
        """Names of the options with several values."""
        return tuple(self._swept)

    def workload(self, seed=None, shake=None, **variant):
        """Read the trace, or run the model, with another seed or shake, or values of the varied options.

        Returns:
            Workload: ``jobs``, ``machine``, and ``notes`` on reading them

        Raises:
            ValueError: the trace cannot be read; the text says why
        """
        own = {key: values[0] for key, values in self._swept.items()}
        shake = self.shake if shake is None else shake
        options = {**self._options, **own, **variant, "machine": self.machine}
        options["seed"] = self.seed if seed is None else seed
        try:
            workload = build(SimpleNamespace(shake=shake or 0.0, **options))
        except TraceError as exc:
            if exc.path not in self._tables:
                raise
            where = self._tables[exc.path] + (
                f", row {exc.line - 2}" if (exc.line or 0) > 1 else ""
            )
            raise TraceError(where, None, exc.reason) from None
        if self._tables:
            for what in ("time of submission", "run time", "size"):
                number = workload.notes.get(f"jobs left out: no {what}")
                if number:
                    workload.notes.warn(f"rows without a {what}, which are left out: {number:,}")
        if self._counts_memory and not any(
            job.extra and ("memory" in job.extra or "jobspec" in job.extra) for job in workload.jobs
        ):
            workload.notes.warn(
                "no job that takes part of a node requests memory: --memory-per-node changes nothing"
            )
        _, nobody = with_userids(self.config, workload.userids)
        if nobody:
            workload.notes.fact(
                f"users in the tables without a job in the trace: {', '.join(nobody)}"
            )
        for key, how in APPLIED.items():
            if lookup_path(self.config, key) is not None:
                workload.notes.warn(f"{key} of the configuration: {how}")
        if shake:
            workload.shaken = 0.0 if self.is_model else shake
            workload.notes.fact(f"submissions are shaken by up to {shake:g} s")
        return workload

    def cases(self, seeds=None):
        """Return the workloads of a study, `seeds` per variant: of the model, or with submissions shaken."""
        check_count("seeds", seeds)
        shake = self.shake
        if seeds and not self.is_model:
            shake = SHAKE if shake is None else shake
            if not shake:
                raise OptionError("shake=0: the workloads of all seeds would be the same")
        found = []
        keys = [key for key in SWEPT if key in self._swept]
        for values in itertools.product(*(self._swept[key] for key in keys)):
            variant = dict(zip(keys, values))
            for seed in range(self.seed, self.seed + (seeds or 1)):
                work = self.workload(seed, shake, **variant)
                found.append(Case(work, seed if seeds else None, variant, len(found), seed))
        return found


def file_of(data, owner):
    """Write a table (DataFrame or list of dict; missing values may be None, NaN or NaT) as CSV to a
    file that is removed with the object `owner`. Raises OptionError if it is neither, or has no rows."""
    rows = data.to_dict("records") if hasattr(data, "columns") else data
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        text = "expected a file, a DataFrame, or a list of dicts"
        raise OptionError(f"a trace of type {type(data).__name__}: {text}")
    if not rows:
        raise OptionError("a trace without jobs")
    directory = tempfile.mkdtemp(prefix="flux-simulate-")
    weakref.finalize(owner, shutil.rmtree, directory, ignore_errors=True)
    path = os.path.join(directory, type(data).__name__)  # the name of the trace
    names = list(dict.fromkeys(key for row in rows for key in row))
    has_ids = any(str(name).strip().lower() in COLUMNS["id"] for name in names)
    with open(path, "w", encoding="utf-8", newline="") as stream:
        # All fields are quoted: a line that begins with # is a comment.
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
        writer.writerow([*([] if has_ids else ["id"]), *names])
        for number, row in enumerate(rows):
            own = [] if has_ids else [number]
            writer.writerow([*own, *(_text(row.get(name)) for name in names)])
    return path


def _text(value):
    try:
        if value is None or value != value:
            return ""
    except TypeError:
        return ""  # pandas.NA is neither
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, float) and value.is_integer():
        return int(value)  # a user id in a column that lacks some
    return " ".join(value.splitlines()) if isinstance(value, str) else value
