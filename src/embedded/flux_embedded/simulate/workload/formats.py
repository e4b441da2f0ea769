# SPDX-License-Identifier: LGPL-3.0-or-later
"""Which reader a trace needs."""

import json
import os
import tarfile

from flux_embedded.simulate.workload import batsim, columns, fluxlog, swf
from flux_embedded.simulate.workload.text import lines, open_bytes, read_text

FORMATS = ("auto", "swf", "sacct", "flux", "accounting", "batsim", "csv")


def reader(source, form="auto"):
    """The jobs of a trace, as an iterator of `Record`.

    Args:
        source (Source): the file
        form (str): one of `FORMATS`

    Raises:
        TraceError: it has none of the formats, or cannot be read
    """
    if not os.path.exists(source.path):
        raise source.error(0, "there is no such file")
    if form == "auto":
        form = detect(source)
        source.notes.fact(f"{os.path.basename(source.path)}: read as {form}")
    if form == "swf":
        return swf.read(source)
    if form in ("sacct", "csv"):
        return columns.read(source)
    if form == "batsim":
        return batsim.read(source)
    if form == "accounting":
        return fluxlog.read_accounting(source)
    if os.path.isdir(source.path) or _is_archive(source):
        return fluxlog.read_eventlogs(source)
    return fluxlog.read_list(source)


def _is_archive(source):
    return tarfile.is_tarfile(source.path)


def detect(source):
    """The format of a trace, by its content.

    Raises:
        TraceError: it has none that is known
    """
    if os.path.isdir(source.path):
        return "flux"
    try:
        with open_bytes(source.path) as stream:
            head = stream.read(16)
    except (OSError, EOFError):
        head = b""
    if head == b"SQLite format 3\0":
        return "accounting"
    if head and _is_archive(source):
        return "flux"
    for _, line in lines(source):
        text = line.strip().lstrip("\ufeff")
        if not text or text.startswith("#"):
            continue
        if text[0] in "{[":
            return _of_json(source)
        if text[0] == ";" or _is_number(text.split()[0]) and len(text.split(None, 18)) >= 18:
            return "swf"
        header, delimiter = columns.split_header(text)
        if columns.is_table(header):
            return "sacct" if delimiter == "|" else "csv"
        break
    raise source.error(
        1, f"none of the formats known ({', '.join(FORMATS[1:])}): give it with --format"
    )


def _is_number(word):
    try:
        float(word)
    except ValueError:
        return False
    return True


def _of_json(source):
    text = read_text(source)
    try:
        document = json.loads(text)
    except ValueError:
        return "flux"  # one object a line
    return "batsim" if isinstance(document, dict) and "profiles" in document else "flux"
