# SPDX-License-Identifier: LGPL-3.0-or-later
"""The builder of the libhwloc binding: its output, and its messages about missing parts."""

import os
import shutil
import sys

import pytest
from shared import SRCDIR, run

SCRIPT = SRCDIR / "src" / "bindings" / "python" / "_flux_hwloc" / "build.py"


def build(*args, script=SCRIPT, **environment):
    env = {key: value for key, value in os.environ.items() if not key.startswith("HWLOC_")}
    env.update(environment)
    return run(sys.executable, script, *args, env=env)


@pytest.fixture(scope="module")
def buildable():
    done = build("--check")
    if done.returncode:
        pytest.skip(done.stderr.strip())


def test_one_file_in_the_directory_that_was_named(buildable, tmp_path):
    source = tmp_path / "python" / "source"
    source.mkdir(parents=True)
    script = shutil.copy(SCRIPT, source / "build.py")
    shutil.copy(SCRIPT.parents[2] / "extension.py", tmp_path)
    source.chmod(0o555)
    try:
        done = build("--output-dir", str(tmp_path / "out" / "deep"), script=script)
    finally:
        source.chmod(0o755)
    assert (done.returncode, done.stderr) == (0, "")
    (made,) = (tmp_path / "out" / "deep").iterdir()
    assert done.stdout.strip() == str(made)
    assert made.name.startswith("_flux_hwloc.") and made.suffix == ".so"
    assert [path.name for path in source.iterdir()] == ["build.py"]
    code = "import _flux_hwloc as h; "
    code += "print(h.lib.hwloc_topology_init(h.ffi.new('hwloc_topology_t *')))"
    env = {**os.environ, "PYTHONPATH": str(made.parent)}
    assert run(sys.executable, "-c", code, env=env).stdout.strip() == "0"


MISSING = "libhwloc 2.x or its headers are missing (package libhwloc-dev)"


@pytest.mark.parametrize(
    "environment, reason",
    [
        ({"HWLOC_LIBS": "-lno_such_library"}, MISSING),
        ({"HWLOC_CFLAGS": "-DHWLOC_H -DHWLOC_API_VERSION=0x00030000"}, MISSING),
        ({"CC": "/no/such/compiler"}, "no C compiler (/no/such/compiler)"),
    ],
)
def test_the_missing_dependency_is_named(buildable, tmp_path, environment, reason):
    done = build("--output-dir", str(tmp_path / "out"), **environment)
    assert done.returncode == 1
    assert done.stderr.startswith("_flux_hwloc: not built: ") and reason in done.stderr
    assert not (tmp_path / "out").exists()
