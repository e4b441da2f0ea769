# SPDX-License-Identifier: LGPL-3.0-or-later
"""Provenance of a result: software, machine and date, to cite or reproduce it."""

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
import time

from flux_scheduler_version import VERSION

#: The directory with flux/, flux_engine/ and others.
LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
#: Packages of the library that can affect a result.
PACKAGES = ("flux", "flux_engine", "_flux_plan")
#: Distributions that it depends on.
DEPENDENCIES = ("greenlet", "flux-python", "PyYAML", "cffi")


@functools.lru_cache(maxsize=1)
def software():
    """Return ``versions`` (of the library, Python and dependencies), ``commit`` (None outside a
    checkout; with ``+`` if files are modified) and ``sources`` (SHA-256 over all Python files of
    the library and their names). Takes about 30 ms, once."""
    versions = {"flux-scheduler": VERSION, "python": platform.python_version()}
    for name in DEPENDENCIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    commit = None
    # An installation may lie in another project's repository.
    if _git("ls-files", "--error-unmatch", "flux_scheduler_version.py") is not None:
        commit = _git("describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+")
    sources = hashlib.sha256()
    for package in PACKAGES:
        for base, directories, names in os.walk(os.path.join(LIBRARY, package)):
            directories.sort()
            for name in sorted(names):
                if name.endswith(".py"):
                    path = os.path.join(base, name)
                    sources.update(os.path.relpath(path, LIBRARY).encode() + b"\0")
                    with open(path, "rb") as stream:
                        sources.update(stream.read())
    return {"versions": versions, "commit": commit, "sources": sources.hexdigest()}


def _git(*words):
    words = ["git", "-C", LIBRARY, *words]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.strip()


def circumstances():
    """Return ``date`` (now, in UTC) and ``host`` (system, processor, number of processors)."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            models = (line.partition(":")[2] for line in stream if line.startswith("model name"))
            processor = next(models, "").strip()
    except OSError:
        processor = platform.processor()
    host = {"system": platform.platform(), "processor": processor, "processors": os.cpu_count()}
    return {"date": now, "host": host}
