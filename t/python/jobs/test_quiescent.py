# SPDX-License-Identifier: LGPL-3.0-or-later
"""sched.quiescent asked from inside the job manager, as emulators do (message sequence of a whole instance)."""

from pathlib import Path

import pytest
from in_process import InProcess

from flux.scheduler.testing import jobspec, make_R
from flux_embedded.broker.instance import JOB_SERVICES
from flux_embedded.services.job_manager.jobtap.host import Host

MODULES = Path(__file__).resolve().parents[3] / "src" / "modules"


@pytest.mark.parametrize(
    "module, args",
    [
        ("sched-fifo", ["queue-depth=unlimited"]),
        ("sched-fifo", ["queue-depth=2"]),
        ("sched-backfill", []),
    ],
)
def test_the_requests_of_the_step_that_asks_are_counted(module, args):
    instance = InProcess(size=4, services=JOB_SERVICES, R=make_R(4))
    instance.call("module.load", {"path": str(MODULES / module / f"{module}.py"), "args": args})
    answers = []
    jobtap = instance.service("job-manager").jobtap
    plugin = jobtap.add(Host(jobtap, "asks.py", "/nowhere/asks.py", {}).plugin, lambda p: None)
    seen = []

    def sched(p, topic, args):
        seen.append(args["id"])
        if len(seen) == 3:
            p.handle.rpc("sched.quiescent").then(lambda future: answers.append(future.get()))

    plugin.add_handler("job.state.sched", sched)
    spec = jobspec(nodes=1, duration=60, run_duration=50)
    for _ in range(3):
        instance.handle.rpc("job-ingest.submit", {"jobspec": spec, "urgency": 16, "flags": 0})
    instance.run()
    instance.stop()
    assert answers == [{"status": 0, "alloc_current": 3}]
