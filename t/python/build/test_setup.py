# SPDX-License-Identifier: LGPL-3.0-or-later
"""scripts/setup.sh: two scripts on a fresh machine at once."""

import os
import shutil
import subprocess

import pytest
from shared import SRCDIR, run

#: Another process updates the lists of packages until this one has slept twice.
APT_GET = """#!/bin/sh
echo "$@" >>"$HOME/calls"
case " $* " in
*" update "*)
    [ "$(cat "$HOME/slept" | wc -l)" -ge 2 ] && touch "$HOME/lists" && exit
    echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"
    echo "E: Unable to lock directory /var/lib/apt/lists/"
    exit 100 ;;
esac
[ -e "$HOME/lists" ] || { echo "E: Unable to locate package wanted"; exit 100; }
"""


@pytest.fixture
def tree(tmp_path):
    """A tree with a script that installs a package."""
    for name in ("scripts", "bin"):
        (tmp_path / name).mkdir()
    shutil.copy(SRCDIR / "scripts" / "setup.sh", tmp_path / "scripts")
    programs = {
        "scripts/install": '. "$(dirname "$0")/setup.sh"\n: >"$log"\npackages wanted:/nowhere\n',
        "bin/apt-get": APT_GET,
        "bin/id": "echo 0\n",
        "bin/sleep": 'echo "$1" >>"$HOME/slept"\n',
    }
    for name, text in programs.items():
        path = tmp_path / name
        path.write_text(text if text[0] == "#" else f"#!/bin/sh\n{text}")
        path.chmod(0o755)
    (tmp_path / "slept").write_text("")
    return tmp_path


def environment(tree):
    return {**os.environ, "HOME": str(tree), "PATH": f"{tree / 'bin'}:{os.environ['PATH']}"}


def test_the_lists_of_packages_are_waited_for(tree):
    done = run(tree / "scripts" / "install", env=environment(tree), timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tree / "slept").read_text() == "5\n5\n"
    kinds = [line.split()[-1] for line in (tree / "calls").read_text().splitlines()]
    assert kinds == ["wanted", "update", "update", "update", "wanted"]


def test_other_errors_are_not_waited_for(tree):
    path = tree / "bin" / "apt-get"
    path.write_text(APT_GET.replace("lists/lock", "elsewhere"))
    done = run(tree / "scripts" / "install", env=environment(tree), timeout=60)
    assert done.returncode == 1 and "apt-get could not install wanted" in done.stderr
    assert (tree / "slept").read_text() == ""


@pytest.mark.skipif(shutil.which("flock") is None, reason="no flock")
def test_a_second_script_waits_until_the_tree_is_built(tree):
    (tree / "scripts" / "hold").write_text(
        '. "$(dirname "$0")/setup.sh"\necho holding\nread go\nsetup_done\nread end\n'
    )
    (tree / "slept").write_text("5\n5\n")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    env = environment(tree)
    with subprocess.Popen(["sh", tree / "scripts" / "hold"], env=env, **pipes) as first:
        assert first.stdout.readline() == "holding\n"
        with subprocess.Popen([tree / "scripts" / "install"], env=env, **pipes) as second:
            assert "waiting for it" in second.stdout.readline()
            assert not (tree / "calls").exists()
            first.stdin.write("go\n")
            first.stdin.flush()
            second.communicate(timeout=60)
            assert second.returncode == 0
        first.communicate("end\n", timeout=60)


def test_without_make_the_tree_runs_as_it_is(tree):
    for name in ("dirname", "mkdir", "date", "autoreconf"):
        (tree / "bin" / name).symlink_to(shutil.which(name) or "/bin/true")
    (tree / ".venv" / "bin").mkdir(parents=True)
    (tree / ".venv" / "bin" / "python").symlink_to("/bin/true")
    (tree / "scripts" / "one").write_text('. "$(dirname "$0")/setup.sh"\n: >"$log"\nbuild\n')
    env = {"PATH": str(tree / "bin")}
    done = run(shutil.which("sh"), tree / "scripts" / "one", env=env, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no make or no autoconf" in done.stdout
