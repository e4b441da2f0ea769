# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs in memory, as a DataFrame or a list of dicts, written to a file for a reader of traces."""

import csv
import datetime
import os
import shutil
import tempfile
import weakref

from flux.simulate.workload.columns import COLUMNS
from flux.simulate.workload.record import OptionError


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
