# SPDX-License-Identifier: LGPL-3.0-or-later
"""Read results from their directories."""

import csv
import json
import math
import os

from flux.simulate.results.outcome import units_of
from flux.simulate.trace import variant_text


class ResultError(ValueError):
    """A directory or file is not a valid result; the text names it."""


#: Rounding of written times, seconds.
GRAIN = 1e-5


class Row:
    """A row of ``jobs.csv``. Times are seconds since the start of the workload, or None.

    ``run``, ``wait``, ``turnaround`` are the written values; ``profile`` is the run time if nothing
    ends the job; ``max_wait`` is the maximum wait in seconds, ``deadline`` the time by which it
    must end; ``placement`` is the requested placement, and ``constraints`` (RFC 31) are given only
    with it; ``bank`` is "" if it has none, and ``licenses`` {name: number} or None.
    """

    #: attribute -> column, of texts, and of numbers, which may be missing
    TEXTS = {
        "id": "job_id", "state": "final_state", "success": "success", "allocated": "allocated_resources",
    }  # fmt: skip
    NUMBERS = {
        "start": "starting_time", "end": "finish_time", "run": "execution_time", "wait": "waiting_time", "turnaround": "turnaround_time",
        "stretch": "stretch", "promise": "first_promise",
    }  # fmt: skip
    METADATA = (
        "preempted_for", "max_wait", "deadline", "bank", "licenses", "placement", "constraints",
    )  # fmt: skip
    __slots__ = (
        *TEXTS, *NUMBERS, *METADATA, "submit", "size", "limit", "profile", "queue", "user",
    )  # fmt: skip

    def __init__(self, values):
        for name, column in self.TEXTS.items():
            setattr(self, name, values[column])
        for name, column in self.NUMBERS.items():
            setattr(self, name, float(values[column]) if values[column] else None)
        metadata = json.loads(values["metadata"]) if values.get("metadata") else {}
        for name in self.METADATA:
            setattr(self, name, metadata.get(name))
        self.bank = self.bank or ""
        self.submit = float(values["submission_time"])
        self.size = int(values["requested_number_of_resources"])
        limit = float(values["requested_time"])
        self.limit = None if limit <= 0 else limit
        kind, _, seconds = values["profile"].partition(":")
        self.profile = float(seconds) if kind == "delay" else None
        self.queue = values["queue"] or None
        self.user = values["user"] or None

    def units(self):
        """Return the bounds of the units that it held. Raises ValueError if the cell is not an
        idset."""
        return units_of(self.allocated)


class Result:
    """One policy's result: a directory with jobs.csv, summary.json and provenance.json, in the output directory `base` of
    the call. Raises ResultError if a file is missing or damaged.

    Attributes:
        variant (str): name of its workload in a sweep
    """

    def __init__(self, directory, base=None):
        self.directory = directory
        self.base = base or os.path.dirname(os.path.abspath(directory))
        self.summary = _json(directory, "summary.json")
        self.provenance = _json(directory, "provenance.json")
        try:
            self.name = self.summary["policy"]
            self.units = self.provenance["machine"]["units"]
        except KeyError as exc:
            text = f"{directory}: {exc.args[0]!r} is not in its summary or provenance"
            raise ResultError(text) from None
        self.variant = variant_text(self.provenance.get("variant") or {})

    def rows(self):
        """Return the jobs, in order of submission."""
        return self._lines("jobs.csv", Row)

    def starts(self):
        """Return the starts, in order of submission; NaN: never."""
        return [math.nan if row.start is None else row.start for row in self.rows()]

    def totals(self):
        """Return schedule.json, or None."""
        return _json(self.directory, "schedule.json") if self._has("schedule.json") else None

    def machine_states(self):
        """Return machine_states.csv as [(time, units idle, units in use)], or None."""

        def read(values):
            return float(values["time"]), int(values["nb_idle"]), int(values["nb_computing"])

        name = "machine_states.csv"
        return self._lines(name, read) if self._has(name) else None

    def _has(self, name):
        return os.path.exists(os.path.join(self.directory, name))

    def _lines(self, name, read):
        """Return ``read(values)`` of each row of a file."""
        path = os.path.join(self.directory, name)
        found = []
        try:
            with open(path, newline="", encoding="utf-8") as stream:
                for values in csv.DictReader(stream):
                    found.append(read(values))
        except OSError as exc:
            raise ResultError(f"{path}: {exc.strerror}") from None
        except (KeyError, TypeError, ValueError, csv.Error) as exc:
            raise ResultError(f"{path}:{len(found) + 2}: not a line of a result: {exc}") from None
        return found


def _json(directory, name):
    path = os.path.join(directory, name)
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except OSError as exc:
        raise ResultError(f"{path}: {exc.strerror}: is this a result of flux simulate?") from None
    except ValueError as exc:
        raise ResultError(f"{path}: not JSON: {exc}") from None
    if not isinstance(found, dict):
        raise ResultError(f"{path}: not a JSON object")
    return found


#: A directory with two of these files is taken for a result, complete or not.
RESULT_FILES = {"summary.json", "jobs.csv", "schedule.json"}


def directories(base):
    """Yield the directories below `base` with results, complete or not."""
    for where, _, names in sorted(os.walk(base)):
        if len(RESULT_FILES.intersection(names)) >= 2:
            yield where


def find(directories):
    """Return the results in directories: each is a result, or contains results (an output
    directory). Raises ResultError if a directory has no results."""
    found = []
    for directory in directories:
        if os.path.exists(os.path.join(directory, "summary.json")):
            found.append(Result(directory))
            continue
        inner = [w for w, _, files in sorted(os.walk(directory)) if "summary.json" in files]
        if not inner:
            raise ResultError(f"{directory}: no result of flux simulate in it")
        found += [Result(where, os.path.abspath(directory)) for where in inner]
    return found
