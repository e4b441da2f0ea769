# SPDX-License-Identifier: LGPL-3.0-or-later
"""The implementations of plans: interpreted, and the compiled part."""

import importlib.machinery
import importlib.util
import os
import sys

import pytest
from shared import SRCDIR, run

from flux.resource.plan import compiled

BUILD = SRCDIR / "src" / "bindings" / "python" / "_flux_plan" / "build.py"
#: Small limits, so that a few promises fill blocks and lists, and exceed them.
SMALL = {"STEPS_PER_BLOCK": 4, "OPENINGS_TOGETHER": 2, "MAX_KEPT": 12}


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """The compiled part, built with small limits."""
    where = tmp_path_factory.mktemp("plan")
    flags = " ".join(f"-D{name}={value}" for name, value in SMALL.items())
    env = {**os.environ, "CFLAGS": flags}
    done = run(sys.executable, "-B", BUILD, "--output-dir", where, env=env)
    if done.returncode:
        pytest.skip(done.stderr.strip())
    loader = importlib.machinery.ExtensionFileLoader("_flux_plan", done.stdout.strip())
    spec = importlib.util.spec_from_file_location("_flux_plan", loader.path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def use(way, request, monkeypatch):
    """Use one implementation for plans made from now on."""
    if way == "interpreted":
        monkeypatch.setattr(compiled, "lib", None)
    elif way == "compiled":
        if not compiled.is_built():
            pytest.skip("_flux_plan is not built: make")
    else:
        module = request.getfixturevalue("small")
        monkeypatch.setattr(compiled, "ffi", module.ffi)
        monkeypatch.setattr(compiled, "lib", module.lib)
    return way


@pytest.fixture(params=["interpreted", "compiled", "compiled with small limits"])
def way(request, monkeypatch):
    """Plans use this implementation."""
    return use(request.param, request, monkeypatch)


@pytest.fixture(params=["compiled", "compiled with small limits"])
def built(request, monkeypatch):
    """Plans use the compiled part."""
    return use(request.param, request, monkeypatch)


@pytest.fixture
def interpreted(request, monkeypatch):
    """Plans do not use the compiled part."""
    return use("interpreted", request, monkeypatch)
