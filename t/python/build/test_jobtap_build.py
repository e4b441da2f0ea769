# SPDX-License-Identifier: LGPL-3.0-or-later
"""Messages of src/jobtap/build.py about missing parts; configure shows them and continues without python.so."""

import os
import sys

import pytest
from shared import SRCDIR, run

BUILD = SRCDIR / "src" / "jobtap" / "build.py"


def check(**environ):
    env = {**os.environ, **environ}
    env = {name: value for name, value in env.items() if not name.startswith("FLUX_CORE_")}
    return run(sys.executable, BUILD, "--check", env=env)


def test_no_compiler():
    done = check(CC="/no/such/cc")
    assert done.returncode == 1
    assert done.stderr.startswith("python.so: not built: ") and done.stderr.count("\n") == 1


def test_no_flux_core(tmp_path):
    done = check(PKG_CONFIG_LIBDIR=str(tmp_path), PKG_CONFIG_PATH="")
    if "no shared library" in done.stderr or "no cffi" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 1
    assert "pkg-config does not know flux-core" in done.stderr
