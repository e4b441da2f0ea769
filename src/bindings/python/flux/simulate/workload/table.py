# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs in memory, as a DataFrame or a list of dicts, written to a file for a reader of traces."""

import csv
import datetime
import os
import shutil
import tempfile
import weakref

from flux.simulate.workload.record import OptionError


def file_of(data, owner):
    """Write a table (DataFrame or list of dict; missing values may be None, NaN or NaT) as CSV to a
    file that is removed with the object `owner`. Raises OptionError if it is neither, or has no rows."""
    rows = data.to_dict("records") if hasattr(data, "to_dict") else data
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        text = "expected a file, a DataFrame, or a list of dicts"
        raise OptionError(f"a trace of type {type(data).__name__}: {text}")
    if not rows:
        raise OptionError("a trace without jobs")
    directory = tempfile.mkdtemp(prefix="flux-simulate-")
    weakref.finalize(owner, shutil.rmtree, directory, ignore_errors=True)
    path = os.path.join(directory, "table.csv")
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        for row in rows:
            writer.writerow({key: _text(value) for key, value in row.items()})
    return path


def _text(value):
    try:
        if value is None or value != value:
            return ""
    except TypeError:
        return ""  # pandas.NA is neither
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return value
