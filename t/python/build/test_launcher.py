# SPDX-License-Identifier: LGPL-3.0-or-later
"""src/cmd/flux: finds its Python and its modules from wherever it is called."""

import os
import shutil
import sys

import pytest
from shared import run

#: A command that prints its arguments and its path.
COMMAND = """
def main(argv):
    import sys
    print(*argv, *sys.path[:2], sep='|')
    exec(argv[0])
    return 3
"""


@pytest.fixture
def tree(tmp_path, srcdir):
    """A source tree with only the launcher, and a command."""
    for name in ("src/cmd", "src/bindings/python", "src/embedded/flux_embedded"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(srcdir / "src" / "cmd" / "flux", tmp_path / "src" / "cmd" / "flux")
    package = tmp_path / "src" / "embedded" / "flux_embedded"
    (package / "cmd.py").write_text(COMMAND)
    (package / "__init__.py").write_text("")
    return tmp_path


def call(*command, **env):
    done = run(*command, env={**os.environ, **env})
    return done.returncode, done.stdout.strip(), done.stderr


def paths(tree):
    return [str(tree / "src" / "bindings" / "python"), str(tree / "src" / "embedded")]


def test_called_through_the_path_and_through_symbolic_links(tree):
    (tree / "one").symlink_to("src/cmd/flux")
    (tree / "sub").mkdir()
    (tree / "sub" / "two").symlink_to("../one")
    for command in (tree / "one", tree / "sub" / "two"):
        assert call(command, "0")[1].split("|")[1:] == paths(tree)
    code, out, _ = call("flux", "0", PATH=f"{tree / 'src' / 'cmd'}:{os.environ['PATH']}")
    assert (code, out.split("|")[1:]) == (3, paths(tree))


def test_prepended_paths_come_first(tree):
    out = call(tree / "src" / "cmd" / "flux", "0", FLUX_PYTHONPATH_PREPEND="/a:/b")[1]
    assert out.split("|")[1:] == ["/a", "/b"]


def test_site_packages_are_found_when_asked_for(tree):
    env = {"FLUX_SCHEDULER_PYTHON": sys.executable}
    code, _, err = call(tree / "src" / "cmd" / "flux", "import greenlet", **env)
    assert code == 3, err


def test_without_the_embedded_instance_it_says_so(tree):
    shutil.rmtree(tree / "src" / "embedded")
    code, _, err = call(tree / "src" / "cmd" / "flux", "0")
    assert code == 1
    assert "the embedded instance is not installed completely" in err


def test_a_python_without_greenlet_is_told_from_a_defect(srcdir, tmp_path):
    missing = "raise ModuleNotFoundError('No greenlet', name='greenlet')"
    (tmp_path / "greenlet.py").write_text(missing)
    flux = srcdir / "src" / "cmd" / "flux"
    code, _, err = call(flux, "start", "true", FLUX_PYTHONPATH_PREPEND=str(tmp_path))
    assert (code, err.count("\n")) == (1, 1)
    assert "No greenlet: install it, or name another Python in FLUX_SCHEDULER_PYTHON" in err
