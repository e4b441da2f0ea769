# SPDX-License-Identifier: LGPL-3.0-or-later
"""The instance without socket or command, as tests and fault runs use it."""

import gc
import json
import weakref

import pytest

from flux_embedded.broker.instance import Instance
from flux_engine.kernel.clock import VirtualClock


@pytest.fixture
def instance():
    instance = Instance(size=4, clock=VirtualClock(), hosts=["n0", "n1", "n2", "n3"])
    instance.start()
    yield instance
    instance.stop()


def events(instance, jobid):
    """Wait for the end of a job; return the names of its events."""
    watch = instance.handle.rpc(
        "job-info.eventlog-watch", {"id": jobid, "path": "eventlog", "flags": 0}, flags=2
    )
    names = []
    while True:
        try:
            names.append(json.loads(watch.get()["event"])["name"])
        except OSError:
            return names
        watch.reset()


def test_bad_configuration_is_refused():
    with pytest.raises(ValueError, match="only strings, numbers"):
        Instance(conf={"x": object()})


@pytest.mark.parametrize("end", ["stopped", "unloaded", "killed"])
def test_an_instance_that_was_stopped_is_collected(end):
    """A scheduler always has open requests; the bindings' references to them must not keep the instance alive."""
    instance = Instance(size=2, clock=VirtualClock())
    instance.start()
    instance.load_module("sched-fifo")
    if end == "unloaded":
        instance.handle.rpc("module.remove", {"name": "sched-fifo", "force": False}).get()
    elif end == "killed":
        instance.kill_module("sched-fifo")
    instance.stop()
    gone = weakref.ref(instance.kernel)
    del instance
    gc.collect()
    assert gone() is None
