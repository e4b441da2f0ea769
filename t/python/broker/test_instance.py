# SPDX-License-Identifier: LGPL-3.0-or-later
"""The instance without socket or command, as tests and fault runs use it."""

import gc
import weakref

import pytest

from flux_embedded.broker.instance import Instance
from flux_engine.kernel.clock import VirtualClock


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
        instance.modules.kill("sched-fifo")
    instance.stop()
    gone = weakref.ref(instance.kernel)
    del instance
    gc.collect()
    assert gone() is None
