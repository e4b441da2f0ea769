# SPDX-License-Identifier: LGPL-3.0-or-later
"""The facts of handle_facts.py, of a handle inside an instance and of one in another process."""

import os
import subprocess
import sys

import bindings_instance
import handle_facts
import pytest

from flux_embedded.kernel import RealClock


@pytest.fixture(params=["virtual", "real"])
def h(request):
    options = {} if request.param == "virtual" else {"clock": RealClock()}
    instance = bindings_instance.make("kvs", **options)
    yield instance.handle
    instance.stop()


@pytest.mark.parametrize("fact", handle_facts.FACTS)
def test_inside(h, fact):
    handle_facts.FACTS[fact](h)


def test_outside(srcdir, tmp_path):
    script = os.path.abspath(handle_facts.__file__)
    env = {**os.environ, "TMPDIR": str(tmp_path)[:60] if len(str(tmp_path)) < 60 else "/tmp"}
    done = subprocess.run(
        [sys.executable, str(srcdir / "src" / "cmd" / "flux"), "start", "--personality=kvs", sys.executable, script],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100,
    )  # fmt: skip
    assert done.stdout.split() == list(handle_facts.FACTS), done.stderr
    assert done.returncode == 0
