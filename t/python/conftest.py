# SPDX-License-Identifier: LGPL-3.0-or-later
"""Set-up of every pytest run: our two directories first on the path, and the recorded data.

The tests run on the embedded instance's bindings, so ``src/bindings/python`` and ``src/embedded`` come before anything
installed; tests started as child processes see the same through PYTHONPATH.  All files of a test go to a temporary
directory or into the tree, never to the user's home.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SRCDIR = HERE.parents[1]
PATHS = [str(SRCDIR / "src" / "bindings" / "python"), str(SRCDIR / "src" / "embedded")]
# In a separate build directory, the compiled parts are there.
BUILDDIR = Path(os.environ.get("FLUX_BUILD_DIR") or SRCDIR)
if BUILDDIR.resolve() != SRCDIR:
    PATHS.append(str(BUILDDIR / "src" / "bindings" / "python"))

for entry in reversed(PATHS):
    while entry in sys.path:
        sys.path.remove(entry)
    sys.path.insert(0, entry)
# Tests import shared.py, the helpers beside them and the programs of t/ by plain name.  Last, because some of our
# directories are named like modules of the standard library (cmd, resource).
ROOMS = [room for room in sorted(HERE.iterdir()) if room.is_dir() and room.name[0] not in "._"]
PROGRAMS = [HERE.parent / name for name in ("bench", "campaign", "faults")]
sys.path.extend(map(str, [HERE, *ROOMS, *PROGRAMS]))
inherited = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p not in PATHS]
os.environ["PYTHONPATH"] = os.pathsep.join(PATHS + inherited)
# An instance the user happens to be inside of must not answer our tests.
for name in (
    "FLUX_URI", "FLUX_HANDLE_USERID", "FLUX_HANDLE_ROLEMASK", "FLUX_MODULE_PATH_PREPEND", "FLUX_PYTHONPATH_PREPEND",
):  # fmt: skip
    os.environ.pop(name, None)

#: Where this run puts temporary files, if it was told nothing else.
OURS = []

import shared  # noqa: E402  (the path above comes first)


def pytest_configure(config):
    """Temporary files of a run of its own; hypothesis keeps no database and draws the same examples in every run."""
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ:
        # Short: there are sockets in it.
        OURS.append(tempfile.mkdtemp(prefix="fp."))
        os.environ["PYTEST_DEBUG_TEMPROOT"] = OURS[0]
    try:
        import hypothesis
    except ImportError:
        return
    hypothesis.settings.register_profile(
        "tree", database=None, deadline=None, derandomize=True, print_blob=True
    )
    hypothesis.settings.load_profile("tree")


def pytest_sessionfinish(session, exitstatus):
    """Remove the temporary files, unless a test has failed."""
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        for directory in OURS:
            shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def srcdir():
    """The root of the source tree, a Path."""
    return SRCDIR


@pytest.fixture(scope="session")
def shared_data():
    """The directory of recorded data, a Path; the test is skipped where there is none."""
    return shared.require_data()
