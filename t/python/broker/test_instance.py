# SPDX-License-Identifier: LGPL-3.0-or-later
"""The instance without socket or command, as tests and fault runs use it."""

import gc
import json
import weakref

import pytest

from flux.scheduler.testing import jobspec
from flux_embedded.broker.instance import Instance
from flux_engine.kernel.clock import VirtualClock

JOBSPEC = jobspec(duration=100.0)


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


def test_stop_may_be_repeated_and_ends_what_does_not_end(tmp_path):
    path = tmp_path / "stuck.py"
    path.write_text(
        "from flux.brokermod import BrokerModule, request_handler\nclass M(BrokerModule):\n"
        " @request_handler('wait')\n def wait(self, msg):\n  self.handle.rpc('stuck.never').get()\n"
        " @request_handler('never')\n def never(self, msg):\n  pass\n"
    )
    instance = Instance(clock=VirtualClock(), services=())
    instance.start()
    instance.load_module(path)
    instance.handle.rpc("stuck.wait")
    instance.kernel.run_until_idle()
    task = instance.modules.table["stuck"].task
    instance.stop()
    instance.stop()
    assert task.greenlet.dead


def test_bad_configuration_is_refused():
    with pytest.raises(ValueError, match="only strings, numbers"):
        Instance(conf={"x": object()})


def test_same_input_same_run():
    """Two runs give the same messages, with the same times."""

    def run():
        seen = []
        instance = Instance(size=2, clock=VirtualClock(), hosts=["a", "b"])
        instance.kernel.intercept = lambda endpoint, msg: (
            seen.append((endpoint.name, msg.topic, msg.payload_str)) and None
        )
        instance.start()
        instance.load_module("sched-backfill")
        for _ in range(5):
            instance.handle.rpc(
                "job-ingest.submit", {"jobspec": JOBSPEC, "urgency": 16, "flags": 0}
            ).get()
        instance.handle.rpc("job-manager.drain").get()
        instance.stop()
        return seen

    first = run()
    assert first == run() and len(first) > 100


@pytest.mark.parametrize("end", ["stopped", "unloaded", "killed"])
def test_an_instance_that_was_stopped_is_collected(end):
    """A scheduler waits for answers all its life; what the bindings keep of those must not keep the instance."""
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
