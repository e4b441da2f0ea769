# SPDX-License-Identifier: LGPL-3.0-or-later
"""`Trace`: recorded or invented jobs, the machine they run on, and the options that a study varies."""

import itertools
import json
import os
from dataclasses import dataclass
from typing import Optional

from flux.simulate.machine import Machine
from flux.simulate.workload.build import Options, Workload, build
from flux.simulate.workload.record import OptionError

#: The trace that comes along, and how to name it.
SAMPLE = "sample"

#: Default of the largest shift of a shaken submission, seconds.
SHAKE = 30.0

#: Options that may have several values, in the order in which their combinations are made.
SWEPT = ("nodes", "limits", "scale_arrivals")


def sample_path():
    """The file of the sample trace."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "sample.swf")


def read_config(path):
    """A TOML configuration as a dict.

    Raises:
        ValueError: it cannot be read
    """
    from flux_engine.formats.config import parse_toml

    try:
        with open(path, encoding="utf-8") as stream:
            return parse_toml(stream.read(), path)
    except (OSError, UnicodeDecodeError) as exc:
        raise ValueError(f"{path}: {getattr(exc, 'strerror', None) or 'not text'}") from None


def read_R(path):
    """A resource set (RFC 20) of a file, as a `Machine`.

    Raises:
        ValueError: it cannot be read, or is none
    """
    try:
        with open(path, encoding="utf-8") as stream:
            R = json.load(stream)
    except OSError as exc:
        raise ValueError(f"{path}: {exc.strerror}") from None
    except ValueError as exc:
        raise ValueError(f"{path}: not JSON: {exc}") from None
    try:
        return Machine(R, path)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"{path}: no resource set: {exc}") from None


@dataclass
class Case:
    """One workload of a study.

    Attributes:
        workload (Workload): jobs and machine
        seed (int or None): seed of the workload, where a study has several
        variant (dict): option -> value, of those that the study varies
        place (int): its place in the study
        drawn (int): seed of all random numbers of the run, those of policies included
    """

    workload: Workload
    seed: Optional[int]
    variant: dict
    place: int = 0
    drawn: int = 1

    @property
    def directory(self):
        """Where its results go, below the study's directory; "" where there is one case only."""
        parts = [variant_slug(self.variant)] if self.variant else []
        if self.seed is not None:
            parts.append(f"seed-{self.seed}")
        return os.path.join(*parts) if parts else ""

    @property
    def label(self):
        """Name of the workload within its study."""
        parts = [variant_text(self.variant)] if self.variant else []
        if self.seed is not None:
            parts.append(f"seed {self.seed}")
        return ", ".join(parts)


def variant_text(variant):
    """A variant for people: ``nodes=64 scale-arrivals=0.8``."""
    return " ".join(f"{key.replace('_', '-')}={value}" for key, value in variant.items())


def variant_slug(variant):
    """The same as the name of a directory."""
    return variant_text(variant).replace(" ", "_").replace("=", "-")


class Trace:
    """Jobs, and the machine they run on.

    Args:
        files (str, pandas.DataFrame or list of dict): traces, which are one workload together; ``"sample"`` is the one that comes along. A
            table has the columns of a file (doc/guide/comparing.rst, *Columns of a table*)
        model (str): jobs from a model instead: ``lublin[:PARAMETER=VALUE,...]``
        format (str): of the files: ``auto``, ``swf``, ``sacct``, ``flux``, ``accounting``, ``batsim``, ``csv``
        R (dict or str): the machine as a resource set (RFC 20), or its file
        config (dict or str): the configuration, or its TOML file: ``resource.config``, ``queues``
        nodes, cores_per_node, gpus_per_node (int): a machine of equal nodes; default: that of the trace
        memory_per_node (str): memory of each, as ``[amounts]`` of the configuration has it: it is counted then
        unit (str): unit of sizes, ``node`` or ``core``; default: by the trace
        limits (str): ``trace``, ``run`` (the run time), or ``xF``: F times that
        estimates (str): limits for jobs without one: ``none``, ``run``, ``f:F``, ``tsafrir``
        window (str): ``DAYS``, ``FROM-TO`` in days, or ``DATE/DATE``
        jobs (int): number of jobs that are taken, from the first on
        scale_arrivals (float): the times between submissions are multiplied by this
        seed (int): of all random numbers, those of policies included
        shake (float): most that a submission is shaken by, seconds
        dependencies (bool): jobs wait for those that the trace says they follow
        status (sequence of int): of SWF, the statuses of the jobs that are taken; default: all, with a warning if jobs are
            among them that failed or were cancelled

    ``nodes``, ``limits`` and ``scale_arrivals`` may be lists: a study then runs each combination.

    Raises:
        OptionError: an option with a value that it cannot have, or beside one that rules it out
        ValueError: a file that cannot be read
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
        self.files = [self._file(one) for one in files]
        self.config = read_config(config) if isinstance(config, str) else config or {}
        if memory_per_node is not None:
            amounts = {**self.config.get("amounts", {}), "memory": memory_per_node}
            self.config = {**self.config, "amounts": amounts}
        self._config_name = config if isinstance(config, str) else "of the configuration"
        self.R = R
        machine = self._machine()
        if machine is not None and not (nodes is cores_per_node is gpus_per_node is None):
            raise OptionError(
                f"nodes, cores and GPUs per node make a machine; {machine.source} is another one"
            )
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
            **{key: value for key, value in swept.items() if key not in self._swept},
        }

    def _file(self, one):
        if not isinstance(one, (str, os.PathLike)):
            from flux.simulate.workload.table import file_of

            return file_of(one, self)
        return sample_path() if one == SAMPLE and not os.path.exists(one) else os.fspath(one)

    def _machine(self):
        from flux_engine.resource import sources

        R = sources.from_config(self.config)
        if self.R is not None:
            if R is not None:
                raise OptionError(
                    "R and the resource.config of the configuration: give one of them"
                )
            return read_R(self.R) if isinstance(self.R, str) else Machine(self.R, "as given")
        return None if R is None else Machine(R, self._config_name)

    @property
    def is_model(self):
        """Whether a model makes the jobs."""
        return bool(self._options["model"])

    @property
    def sweeps(self):
        """Names of the options that have several values."""
        return tuple(self._swept)

    @property
    def machine(self):
        """The `Machine` that R or the configuration describes, or None: the trace decides."""
        return self._machine()

    def workload(self, seed=None, shake=None, **variant):
        """Read the trace, or ask the model.

        Args:
            seed (int): in place of the trace's own
            shake (float): in place of the trace's own
            variant: values of options that have several

        Returns:
            Workload: ``jobs`` and ``machine``, and ``notes`` about its reading

        Raises:
            ValueError: it cannot be read; the text says why
        """
        own = {key: values[0] for key, values in self._swept.items()}
        shake = self.shake if shake is None else shake
        options = {**self._options, **own, **variant}
        workload = build(
            Options(
                machine=self._machine(),
                seed=self.seed if seed is None else seed,
                shake=shake or 0.0,
                **options,
            )
        )
        if shake:
            workload.shaken = 0.0 if self.is_model else shake
            workload.notes.fact(f"submissions are shaken by up to {shake:g} s")
        return workload

    def cases(self, seeds=None):
        """The workloads of a study.

        Args:
            seeds (int): number of each: of the model, or with submissions shaken by up to `SHAKE`
                seconds where nothing else was said
        """
        shake = self.shake
        if seeds and not self.is_model and shake is None:
            shake = SHAKE
        found = []
        keys = [key for key in SWEPT if key in self._swept]
        for values in itertools.product(*(self._swept[key] for key in keys)):
            variant = dict(zip(keys, values))
            for seed in range(self.seed, self.seed + (seeds or 1)):
                work = self.workload(seed, shake, **variant)
                found.append(Case(work, seed if seeds else None, variant, len(found), seed))
        return found
