# SPDX-License-Identifier: LGPL-3.0-or-later
"""The compiled part of plans, under the address and undefined-behaviour sanitizers."""

import os
import sys

import pytest
from shared import SRCDIR, run

BUILD = SRCDIR / "src/bindings/python/_flux_plan/build.py"
TESTS = ["test_availability.py", "test_compiled.py", "test_bound.py"]

RUN = """
import sys
import pytest
sys.path.insert(0, sys.argv[1])
import _flux_plan
assert _flux_plan.__file__.startswith(sys.argv[1])
sys.exit(pytest.main(["-q", "-s", "-p", "no:cacheprovider", "-k", "compiled and not small", *sys.argv[2:]]))
"""


def library(name):
    """Where the compiler has a library; skips the test if it has none."""
    compiler = os.environ.get("CC", "cc")
    try:
        found = run(compiler, f"-print-file-name={name}").stdout.strip()
    except OSError:
        found = name
    if not os.path.isabs(found):
        pytest.skip(f"{compiler} has no {name}")
    return found


def test_random_histories_under_sanitizers(tmp_path):
    preload = f"{library('libasan.so')} {library('libubsan.so')}"
    flags = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -g -O1"
    python = (sys.executable, "-B")
    env = {**os.environ, "CFLAGS": flags}
    built = run(*python, BUILD, "--quiet", "--output-dir", tmp_path, env=env)
    if built.returncode == 1 and "not built:" in built.stderr:
        pytest.skip(built.stderr.strip())
    assert built.returncode == 0, built.stderr
    tests = [SRCDIR / "t/python/resource" / name for name in TESTS]
    # The interpreter frees nothing when it exits, which is not our leak.
    env = {**os.environ, "LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0"}
    done = run(*python, "-c", RUN, tmp_path, *tests, cwd=SRCDIR, env=env)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert " passed" in done.stdout
