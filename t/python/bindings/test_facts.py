"""The facts of facts.py: of a handle inside an instance, of one in another process, and on a real Flux where there is one."""

import os
import shutil
import sys

import facts
import pytest
from in_process import InProcess
from shared import run


@pytest.fixture
def h():
    instance = InProcess(services=["kvs"])
    yield instance.bindings()
    instance.stop()


@pytest.mark.parametrize("fact", facts.FACTS)
def test_inside(h, fact):
    facts.FACTS[fact](h)


def check(words, env):
    """Run facts.py by a command line; every fact has to hold."""
    done = run(*words, os.path.abspath(facts.__file__), env=env, timeout=600)
    assert done.stdout.split() == list(facts.FACTS), done.stderr
    assert done.returncode == 0, done.stderr


def environment(tmp_path):
    """The environment of an instance: with a directory for its socket whose name is not too long."""
    return {**os.environ, "TMPDIR": str(tmp_path) if len(str(tmp_path)) < 60 else "/tmp"}


def test_outside(srcdir, tmp_path):
    flux = str(srcdir / "src" / "cmd" / "flux")
    words = [sys.executable, flux, "start", sys.executable]
    check(words, environment(tmp_path))


def real_fluxes():
    """The commands of the real Fluxes whose prefixes WITH_FLUX names, or of the one on the PATH."""
    prefixes = os.environ.get("WITH_FLUX", "").split()
    if prefixes == ["no"]:
        return []
    paths = [os.path.join(prefix, "bin") for prefix in prefixes] or [None]
    found = [shutil.which("flux", path=path) for path in paths]
    return [flux for flux in found if flux is not None and is_real(flux)]


def is_real(flux):
    # The embedded command, installed, has no such library.
    version = run(flux, "version").stdout
    return "libflux-core" in version and "embedded" not in version


@pytest.mark.parametrize("flux", real_fluxes() or [None])
def test_on_a_real_flux(flux, tmp_path):
    if flux is None:
        pytest.skip("no real Flux on the PATH or in WITH_FLUX")
    env = {name: value for name, value in environment(tmp_path).items() if name != "PYTHONPATH"}
    check([flux, "start", flux, "python"], env)
