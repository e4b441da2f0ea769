# SPDX-License-Identifier: LGPL-3.0-or-later
"""Commands that are not built in: flux-NAME.py and flux-NAME, in the order a real flux looks."""

import os

import pytest
from shared import SRCDIR, run

FLUX = SRCDIR / "src" / "cmd" / "flux"


@pytest.fixture
def flux(tmp_path):
    """Run flux with commands that print where they lie, in directories by name."""

    def command(directory, file, text):
        path = tmp_path / directory
        path.mkdir(exist_ok=True)
        (path / file).write_text(text)
        (path / file).chmod(0o755)

    def flux(*argv, **places):
        env = dict(os.environ)
        for name, directories in places.items():
            env[name] = ":".join(str(tmp_path / d) for d in directories)
        env["PATH"] = f"{env['PATH']}:{tmp_path / 'path'}"
        return run(FLUX, *argv, env=env)

    flux.command = command
    return flux


def test_the_first_directory_wins(flux):
    for directory in ("first", "second", "path"):
        flux.command(directory, "flux-hello", f"#!/bin/sh\necho {directory} $1\n")
    both = {"FLUX_EXEC_PATH_PREPEND": ["first"], "FLUX_EXEC_PATH": ["second"]}
    assert flux("hello", "you", **both).stdout == "first you\n"
    assert flux("hello", "you", FLUX_EXEC_PATH=["second"]).stdout == "second you\n"
    assert flux("hello", "you").stdout == "path you\n"


def test_a_script_runs_in_flux_own_python_with_its_modules(flux):
    text = "import beside, flux, sys\n"
    text += "print(flux.__name__, sys.argv[1:], beside.__name__)\nexit(3)\n"
    flux.command("first", "flux-hello.py", text)
    flux.command("first", "beside.py", "")
    flux.command("first", "flux-hello", "#!/bin/sh\necho the other\n")
    result = flux("hello", "-x", FLUX_EXEC_PATH=["first"])
    assert (result.stdout, result.returncode) == ("flux ['-x'] beside\n", 3)


def test_an_unknown_command_is_named_and_flux_sched_is_found(flux):
    result = flux("nosuch")
    assert result.returncode == 1
    assert "`nosuch' is not a flux command" in result.stderr
    result = run(FLUX, "sched", "-h")
    assert result.returncode == 0
    assert "explain" in result.stdout


@pytest.mark.parametrize("words", [["getattr", "size"], ["start", "true"], ["R", "encode"]])
def test_missing_bindings_are_one_line(flux, words):
    done = flux(*words, FLUX_SCHEDULER_BINDINGS=["nosuch"])
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "the package flux-python of flux-core's Python bindings is missing" in done.stderr
