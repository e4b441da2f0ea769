# SPDX-License-Identifier: LGPL-3.0-or-later
"""Results read back from their directories."""

import csv
import json
import os

from flux.simulate.results.outcome import units_of
from flux.simulate.trace import variant_text


class ResultError(ValueError):
    """A directory or file that is no result; the text names it."""


#: Rounding of written times, seconds.
GRAIN = 1e-5


class Row:
    """A line of ``jobs.csv``. Times are seconds since the workload began; None where there is none.

    ``run``, ``wait``, ``turnaround`` are the written values; ``profile`` is the run time if nothing ends the job;
    ``max_wait`` is for how long it may wait, ``deadline`` by when it has to end, ``placement`` how it is to be placed,
    ``constraints`` on which nodes (RFC 31; only of one with a placement),
    ``bank`` empty if it has none, and ``licenses`` how many it uses of which (None: none).
    """

    #: attribute -> column of texts, and of numbers, which may be missing
    TEXTS = {
        "id": "job_id",
        "state": "final_state",
        "success": "success",
        "allocated": "allocated_resources",
    }
    NUMBERS = {
        "start": "starting_time", "end": "finish_time", "run": "execution_time", "wait": "waiting_time", "turnaround": "turnaround_time",
        "stretch": "stretch", "promise": "first_promise",
    }  # fmt: skip
    METADATA = (
        "preempted_for", "max_wait", "deadline", "bank", "licenses", "placement", "constraints",
    )  # fmt: skip
    __slots__ = (
        *TEXTS, *NUMBERS, *METADATA, "line", "submit", "size", "limit", "profile", "queue", "user", "backfilled",
    )  # fmt: skip

    def __init__(self, values, line):
        self.line = line
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
        self.backfilled = values["backfilled"] == "1"

    def units(self):
        """The bounds of the units that it held; ValueError: it is no idset that is written there."""
        return units_of(self.allocated)


class Result:
    """One policy's result.

    Args:
        directory (str): with jobs.csv, summary.json and provenance.json
        base (str): the directory of the call that made it

    Attributes:
        variant (str): name of its workload within a sweep

    Raises:
        ResultError: a file is missing or damaged
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
            raise ResultError(
                f"{directory}: {exc.args[0]!r} is not in its summary or provenance"
            ) from None
        self.variant = variant_text(self.provenance.get("variant") or {})

    def rows(self):
        """The jobs, in order of submission."""
        return self._lines("jobs.csv", Row)

    def totals(self):
        """schedule.json, or None."""
        if not os.path.exists(os.path.join(self.directory, "schedule.json")):
            return None
        return _json(self.directory, "schedule.json")

    def machine_states(self):
        """machine_states.csv as [(time, units idle, units in use)], or None."""
        if not os.path.exists(os.path.join(self.directory, "machine_states.csv")):
            return None

        def read(values, line):
            return float(values["time"]), int(values["nb_idle"]), int(values["nb_computing"])

        return self._lines("machine_states.csv", read)

    def _lines(self, name, read):
        """``read(values, line)`` of each line of a file."""
        path = os.path.join(self.directory, name)
        found = []
        try:
            with open(path, newline="", encoding="utf-8") as stream:
                for values in csv.DictReader(stream):
                    found.append(read(values, len(found) + 2))
        except OSError as exc:
            raise ResultError(f"{path}: {exc.strerror}") from None
        except (KeyError, TypeError, ValueError, csv.Error) as exc:
            raise ResultError(f"{path}:{len(found) + 2}: not a line of a result: {exc}") from None
        return found


def _json(directory, name):
    path = os.path.join(directory, name)
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except OSError as exc:
        raise ResultError(f"{path}: {exc.strerror}: is this a result of flux simulate?") from None
    except ValueError as exc:
        raise ResultError(f"{path}: not JSON: {exc}") from None


#: Files of which a result has at least one, whole or not.
OURS = {"summary.json", "jobs.csv", "schedule.json"}


def directories(base):
    """Directories with results of ours below one, also those that were never finished."""
    for where, _, names in sorted(os.walk(base)):
        if len(OURS.intersection(names)) >= 2:
            yield where


def find(directories):
    """The results in directories: each is one, or holds some (the directory of -o).

    Raises:
        ResultError: there are none in one of them
    """
    found = []
    for directory in directories:
        if os.path.exists(os.path.join(directory, "summary.json")):
            found.append(Result(directory))
            continue
        inner = [
            os.path.join(where, "")
            for where, _, files in sorted(os.walk(directory))
            if "summary.json" in files
        ]
        if not inner:
            raise ResultError(f"{directory}: no result of flux simulate in it")
        found += [Result(where.rstrip("/"), os.path.abspath(directory)) for where in inner]
    return found
