# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux simulate --again DIR``: repeat the call that made these results, and compare each job's
start."""

import contextlib
import functools
import hashlib
import importlib.metadata
import io
import os
import platform
import shlex
import subprocess
import tempfile
import time

from flux.simulate.results import reading
from flux.simulate.results.table import run_of
from flux.simulate.workload.text import digest
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


#: Options of place, output and printing, which are dropped -> number of words.
DROPPED = {
    "-o": 2, "--output": 2, "--parallel": 2, "--force": 1, "--resume": 1, "-q": 1, "--quiet": 1, "--json": 1,
}  # fmt: skip
#: Software recorded in a result: the key in its provenance, and its name in messages.
SOFTWARE = {"versions": "versions", "commit": "the commit", "sources": "the library's sources"}


def again(directory, main):
    """Repeat the calls that left results in a directory, each in a temporary directory, by ``main(words)``. Return 0 if all
    jobs start at the recorded times, else 1. Raises ValueError if there are no results, or their provenance lacks the
    command or the directory, KeyboardInterrupt if a call was interrupted."""
    former = reading.find([directory])
    calls = {}
    for one in former:
        record = one.provenance
        if "command" not in record or "directory" not in record:
            raise ValueError(f"{directory}: it does not say which command made it, or where")
        if record["options"].get("live"):
            raise ValueError(
                f"{directory}: it is of a running instance (--live), which has changed"
            )
        words = _without_output(shlex.split(record["command"])[2:])
        calls.setdefault((record["directory"], *words), []).append(one)
    for line in _changes([one.provenance for one in former]):
        print(f"changed since: {line}")
    same = True
    for (where, *words), results in calls.items():
        for one, text in _repeat(where, words, results, main):
            same = same and text.startswith("all ")
            print(f"{run_of(one.summary)}: {text}")
    return 0 if same else 1


def _repeat(where, words, former, main):
    """Repeat a call in the directory `where`. Return its results, each with the comparison."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="flux-simulate-") as output:
        try:
            os.chdir(where)
        except OSError as exc:
            raise ValueError(f"{where}: {exc.strerror}") from None
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                code = main([*words, "-q", "-o", output])
        finally:
            os.chdir(here)
        if code == 130:
            raise KeyboardInterrupt
        new = reading.find([output]) if code != 2 else []
        found = {run_of(one.summary): one for one in new}
        return [(one, _comparison(one, found.get(run_of(one.summary)))) for one in former]


def _comparison(former, new):
    if new is None:
        return "is not there any more"
    # A script stops a run at the same time again, a signal does not.
    if former.summary["interrupted"] and not new.summary["interrupted"]:
        return "it was interrupted, and cannot be compared"
    failures = former.summary.get("failed"), new.summary.get("failed")
    if failures[0] != failures[1]:
        then, now = (f"failed ({text})" if text else "did not fail" for text in failures)
        return f"it {then} then, and {now} now"
    then, now = former.rows(), new.rows()
    if len(then) != len(now):
        return f"{len(then):,} jobs then, {len(now):,} now"
    others = [a.id for a, b in zip(then, now) if (a.id, a.start) != (b.id, b.start)]
    if not others:
        started = sum(row.start is not None for row in then)
        end = f", and it fails as then: {failures[0]}" if failures[0] else ""
        return f"all {started:,} jobs start when they did{end}"
    return f"{len(others):,} of {len(then):,} jobs start at other times, the first: {others[0]}"


def _changes(records):
    """Yield the differences from the provenance of results, as texts, each once."""
    now = software()
    texts, files = {}, {}
    for record in records:
        for key, name in SOFTWARE.items():
            if record.get(key) != now[key]:
                texts[f"{name}: {record.get(key)} then, {now[key]} now"] = None
        scheduler = record["scheduler"]
        known = {one["path"]: one["sha256"] for one in record["files"]}
        known.update({scheduler["path"]: scheduler["sha256"]}, **scheduler.get("files", {}))
        for path, then in known.items():
            files[os.path.join(record["directory"], path), then] = None
    yield from texts
    for path, then in files:
        if not os.path.isfile(path):
            yield f"{path} is not there"
        elif digest(path) != then:
            yield f"{path} was changed"


def _without_output(words):
    """Return the words of a command line without the options in `DROPPED`."""
    left = []
    words = list(words)
    while words:
        word = words[0]
        count = DROPPED.get(word) or int(word.startswith(("--output=", "--parallel=", "-o")))
        if not count:
            left.append(word)
        del words[: count or 1]
    return left
