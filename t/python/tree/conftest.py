# SPDX-License-Identifier: LGPL-3.0-or-later
"""The binding to libhwloc for the tests of this directory: the built one, or one built for them."""

import sys

import pytest
from shared import SRCDIR, run


@pytest.fixture(scope="session")
def hwloc(tmp_path_factory):
    """Make `_flux_hwloc` importable, or skip the test with the reason."""
    try:
        import _flux_hwloc
    except ImportError:
        where = tmp_path_factory.mktemp("hwloc")
        script = SRCDIR / "src" / "bindings" / "python" / "_flux_hwloc" / "build.py"
        done = run(sys.executable, script, "--quiet", "--output-dir", where)
        if done.returncode:
            pytest.skip(done.stderr.strip().splitlines()[-1])
        sys.path.append(str(where))
        # A directory of that name on the path was taken for a package without code.
        sys.modules.pop("_flux_hwloc", None)
        import _flux_hwloc
    if not hasattr(_flux_hwloc, "lib"):
        pytest.skip("_flux_hwloc is not built")
    return _flux_hwloc
