# SPDX-License-Identifier: LGPL-3.0-or-later
"""The start of a scheduler: acquire, hello, ready; and the ways it can fail."""

import errno
import gc
import json

import pytest
from peers import Guide, R, Rig, jobspec, ruled

from flux.resource.pool.inventory import Inventory
from flux.resource.pool.state import RankIndex
from flux.scheduler import Scheduler
from flux.scheduler.admission import AdmissionRule
from flux.scheduler.host import kvs_dir, r_key
from flux.scheduler.policies.backfill import Backfill

CRIT, ERR, WARNING, INFO, DEBUG = 2, 3, 4, 6, 7


def test_order_of_business():
    rig = Rig(R(2, 4))
    seen = []
    request = rig.reactor.request
    rig.reactor.request = lambda msg: seen.append(msg.topic) or request(msg)
    rig.load(Guide, "queue-depth=3")
    assert seen == [
        "service.add", "service.add", "resource.acquire", "job-manager.sched-hello", "job-manager.sched-ready",
    ]  # fmt: skip
    assert rig.manager.hello_request == {"partial-ok": True}
    assert rig.manager.ready_request == {"mode": "limited", "limit": 3}
    assert rig.logged(INFO) == [
        "ready: queue-depth=3 log-level=info pool-class=Rv1Pool Rv1 rank[0-1]/core[0-3]"
    ]
    assert not rig.task.running  # its reactor sets that: a load returns when the line is there


def test_the_line_ready_has_the_arguments_of_the_policy_as_given():
    rig = Rig(R(1, 1), Backfill, "promise=16", "queue-depth=8", "rank=wfp3")
    args = "queue-depth=8 log-level=info promise=16 rank=wfp3"
    assert rig.logged(INFO) == [f"ready: {args} pool-class=Rv1Pool Rv1 rank0/core0"]


def test_hello_marks_the_resources_of_jobs():
    rig = Rig(R(2, 4))
    rig.will_be_found(1, R("0", "0-2", expiration=5000.0))
    rig.will_be_found(2, R("1", "0-3"))
    rig.load(Guide, "log-level=debug")
    assert rig.sched.resources.copy_allocated().to_dict()["execution"]["R_lite"] == [
        {"rank": "0", "children": {"core": "0-2"}},
        {"rank": "1", "children": {"core": "0-3"}},
    ]
    assert sorted(rig.sched.resources.job_end_times()) == [(1, 5000.0), (2, 0.0)]
    assert rig.ask("sched.quiescent") == (0, {"status": 0, "alloc_current": 2})
    assert rig.logged(INFO)[0] == "hello: 2 jobs found running"
    assert rig.logged(DEBUG)[:2] == ["hello: ƒ2: rank0/core[0-2]", "hello: ƒ3: rank1/core[0-3]"]


def test_hello_lookups_are_issued_together():
    """Trap 7: one lookup a job, one after the other."""
    rig = Rig(R(40, 1))
    for rank in range(40):
        rig.will_be_found(rank + 1, R(str(rank), "0"))
    rig.load(Guide)
    assert rig.info.most_waiting == 40
    assert len(rig.sched.resources.job_end_times()) == 40


ELSEWHERE = R("9", "0")


@pytest.mark.parametrize(
    "found",
    [ELSEWHERE, R("0", "77"), R("0", "0"), None, "junk", {"version": 9}],
    ids=["unknown rank", "unknown core", "of another job", "no lookup", "no R", "version"],
)
def test_a_job_that_cannot_be_accounted_for_gets_an_exception(found):
    rig = Rig(R(2, 1))
    rig.will_be_found(1, R("0", "0"))
    rig.will_be_found(2, R("0", "0"))
    rig.info.R[2] = found
    rig.will_be_found(3, R("1", "0"))
    rig.load(Guide)
    note = "failed to reallocate R for running job"
    raised = {"id": 2, "type": "scheduler-restart", "severity": 0, "note": note}
    assert rig.manager.raised == [raised]
    there = sorted(jobid for jobid, _ in rig.sched.resources.job_end_times())
    if found is ELSEWHERE:
        # As a job whose ranks leave later it is there until it is freed, and is on none.
        assert there == [1, 2, 3]
        assert rig.sched.resources.held_ranks(2) == 0
        rig.free(2, found, wait=0)
        there = sorted(jobid for jobid, _ in rig.sched.resources.job_end_times())
    assert there == [1, 3]
    assert rig.sched.stats_get()["errors"] == 1


def test_a_hello_override_that_raises_costs_its_job_only():
    class Picky(Guide):
        def hello(self, jobid, priority, userid, t_submit, R):
            assert (priority, userid, t_submit) == (16, 0, 1.5)
            if jobid == 1:
                raise KeyError("what is this")
            super().hello(jobid, priority, userid, t_submit, R)

    rig = Rig(R(2, 1))
    rig.will_be_found(1, R("0", "0"))
    rig.will_be_found(2, R("1", "0"))
    rig.load(Picky)
    assert [e["id"] for e in rig.manager.raised] == [1]
    # Until its resources come back, job 1 is on them.
    assert sorted(jobid for jobid, _ in rig.sched.resources.job_end_times()) == [1, 2]


def test_without_job_info_the_kvs_is_read_with_updates_applied():
    rig = Rig(R(2, 1), job_info=False)
    for jobid, events in ((1, 2), (2, 1), (3, 0)):
        rig.manager.running.append({"id": jobid, "priority": 1, "userid": 0, "t_submit": 0.5})
        if not events:
            continue
        txn = rig.handle.kvs_transaction()
        txn.put(r_key(jobid), R(str(jobid - 1), "0", expiration=100.0))
        lines = [
            '{"timestamp":1.0,"name":"submit"}\n',
            '{"timestamp":2.0,"name":"resource-update","context":{"expiration":900.0}}\n',
        ]
        txn.put(kvs_dir(jobid) + ".eventlog", "".join(lines[:events]), raw=True)
        txn.commit_async()
    assert json.loads(rig.kvs_value(r_key(1)))["execution"]["expiration"] == 100.0
    rig.load(Guide)
    assert sorted(rig.sched.resources.job_end_times()) == [(1, 900.0), (2, 100.0)]
    assert [e["id"] for e in rig.manager.raised] == [3]


@pytest.mark.parametrize("entry", [{}, {"id": "x"}, {"id": None, "priority": 3}])
def test_malformed_hello_entries_are_counted(entry):
    rig = Rig(R(1, 1))
    rig.manager.running.append(entry)
    rig.load(Guide)
    assert rig.sched.stats_get()["errors"] == 1


@pytest.mark.parametrize("module", ["sched-fifo", "sched-simple", "sched-backfill"])
@pytest.mark.parametrize(
    "odd",
    [
        {"t_submit": None}, {"t_submit": "x"}, {"t_submit": float("nan")}, {"priority": {}}, {"userid": -1}, {},
    ],
)  # fmt: skip
def test_a_running_job_is_taken_over_whatever_else_is_said_of_it(module, odd):
    """Only the id is needed to look up its resources. Such an entry once ended the scheduler."""
    rig = Rig(R(2, 1))
    known = {"priority": 16, "userid": 0, "t_submit": 1.0} if odd else {}
    rig.manager.running.append({"id": 1, **known, **odd})
    rig.info.R[1] = R("1", 1)
    rig.load(module)
    assert [job for job, _ in rig.sched.resources.job_end_times()] == [1]
    assert rig.manager.raised == [] and rig.sched.stats_get()["errors"] == (3 if not odd else 1)
    rig.alloc(2, jobspec(1))
    assert rig.success(2)


# -- trap 10: a failed start that leaves the instance without a scheduler and without an error -----


def failing_start(rig, cls=Guide, *args):
    rig.load(cls, *args, wait=False)
    rig.settle()
    assert rig.task.ended
    assert rig.task.failure is not None
    assert rig.logged(CRIT if rig.task.running else ERR) == [f"cannot start: {rig.task.failure}"]
    return rig.task.failure


@pytest.mark.parametrize(
    "of, name, value, errnum",
    [
        ("names", "taken", ("sched",), errno.EEXIST),
        ("names", "taken", ("feasibility",), errno.EEXIST),
        ("resource", "error", (errno.EBUSY, "busy"), errno.EBUSY),
        ("manager", "hello_error", (errno.ENOTSUP, "partly freed jobs"), errno.ENOTSUP),
    ],
)
def test_trap_10_a_peer_that_refuses(of, name, value, errnum):
    rig = Rig(R(1, 1))
    setattr(getattr(rig, of), name, value)
    failure = failing_start(rig)
    assert failure.errno == errnum
    assert (of == "names") == ("another scheduler is loaded: remove it first" in str(failure))


@pytest.mark.parametrize(
    "inventory", [{"version": 7}, {"version": 1}, {"version": 1, "execution": {"R_lite": 3}}]
)
def test_trap_10_unusable_inventory(inventory):
    rig = Rig(inventory, up="")
    failing_start(rig)
    assert not rig.task.running  # so the load fails, and not the instance


class Late(Guide):
    """Its pool cannot be made."""

    def _make_pool(self, R):
        raise ValueError("no racks in this R")


def test_resources_that_are_not_known_yet_are_waited_for_by_a_module_that_runs():
    rig = Rig(R(1, 1))
    rig.resource.discovering = True
    before = []

    rig.reactor.call_later(1, lambda: before.append((rig.task.running, rig.manager.ready_request)))
    rig.reactor.call_later(1, rig.resource.discovered)
    rig.load(Guide)
    assert before == [(True, None)]
    assert rig.manager.ready_request == {"mode": "unlimited"}
    rig.alloc(1)
    assert rig.started() == [1]


def test_a_pool_that_cannot_be_made_of_late_resources_ends_the_scheduler_in_order():
    rig = Rig(R(1, 1))
    rig.resource.discovering = True
    rig.reactor.call_later(1, rig.resource.discovered)
    rig.load(Late)
    assert rig.task.running
    assert rig.task.ended and rig.task.failure is None
    assert rig.logged(CRIT) == ["cannot start: no racks in this R"]


@pytest.mark.parametrize("errnum", [errno.ECANCELED, errno.EIO, errno.ENODATA])
def test_the_end_of_the_resource_service_ends_the_scheduler_in_order(errnum):
    """Nothing that is critical if it was canceled: administrators ask for that."""
    rig = Rig(R(1, 1), Guide)
    rig.resource.respond_error(rig.resource.stream, errnum, "disk on fire")
    rig.settle()
    assert rig.task.ended and rig.task.failure is None and rig.logged(ERR) == []
    if errnum == errno.ECANCELED:
        assert rig.logged(INFO)[-1] == "disk on fire: the scheduler ends"
        assert rig.logged(CRIT) == []
    else:
        assert "disk on fire: the scheduler ends here" in rig.logged(CRIT)[0]


def test_a_new_end_of_the_instance_is_logged():
    rig = Rig(R(1, 1), Guide)
    rig.resource.update(expiration=1795184365.0123)
    rig.resource.update(expiration=-5)
    rig.resource.update(expiration=0)
    told = [f"resource expiration updated to {end}" for end in ("1795184365.01", "0.00")]
    assert rig.logged(INFO)[-2:] == told
    assert rig.sched.resources.expiration == 0


def test_unload_answers_nothing_on_the_way_out():
    rig = Rig(R(1, 1), Guide)
    rig.arrive((1, 2))
    before = len(rig.received)
    rig.unload()
    assert rig.task.failure is None
    # The instance refuses unanswered requests, as a broker does; the scheduler itself sends nothing.
    assert all(errnum == errno.EHOSTUNREACH for _, errnum, _ in rig.received[before:])


# -- pool classes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "writer, warned", [("fluxion", 0), ("fluxion:jgf", 0), (None, 0), ("no-such-pool", 1), (7, 1)]
)
def test_unknown_writers_fall_back(writer, warned):
    scheduling = {} if writer is None else {"writer": writer}
    rig = Rig(R(1, 1, scheduling=scheduling), Guide)
    assert "pool-class=Rv1Pool" in rig.logged(INFO)[-1]
    assert len(rig.logged(INFO)) == 1 + warned


def test_a_resource_graph_of_fluxion_is_warned_of():
    rig = Rig(R(1, 1, scheduling={"graph": {"nodes": [], "edges": []}}), Guide)
    (text,) = rig.logged(WARNING)
    said = "R.scheduling has a resource graph of Fluxion, which is copied into R of each job"
    assert text.startswith(said)


def test_paths_agree_with_the_bindings():
    from flux.job import JobID

    for jobid in (0, 1, 28420603904, (1 << 64) - 1):
        assert kvs_dir(jobid) == JobID(jobid).kvs


def test_pool_options_reach_a_pool_whose_constructor_names_them():
    """The guide's pools declare no options: their constructors show them."""
    from flux.resource import ResourcePool

    class Racks(ResourcePool):
        def __init__(self, R, log=None, per_rack=1, **kwargs):
            super().__init__(R, log=log)
            self.per_rack = per_rack
            self.others = kwargs

    class Mine(Guide):
        pool_class = Racks
        pool_kwargs = {"per_rack": 4, "colour": "blue"}

    rig = Rig(R(1, 1), Mine)
    assert (rig.sched.resources.per_rack, rig.sched.resources.others) == (4, {})
    assert rig.logged(WARNING) == ["pool_kwargs: Racks does not know 'colour', ignored"]


def guide_pool():
    """A pool with the methods of the guide, and no plan."""
    from flux.resource.ResourcePool import ResourcePool
    from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
    from flux.resource.Rv1Pool import Rv1Pool

    methods = """check_feasibility copy_allocated copy_down dumps free job_end_times mark_down mark_up
        parse_resource_request register_alloc remove_ranks set_expiration set_starttime to_dict
        to_resource_set update_expiration"""

    class Plain(ResourcePoolImplementation):
        version = 1

        def __init__(self, R, log=None, inner=None):
            self.inner = inner or Rv1Pool(R, log=log)

        def alloc(self, jobid, request):
            return Plain(None, inner=self.inner.alloc(jobid, request))

        def copy(self):
            return Plain(None, inner=self.inner.copy())

    for name in ("expiration", "generation"):
        setattr(Plain, name, property(lambda self, name=name: getattr(self.inner, name)))
    for name in methods.split():
        call = lambda self, *args, name=name, **keys: getattr(self.inner, name)(*args, **keys)  # noqa: E731
        setattr(Plain, name, call)

    class PlainPool(ResourcePool):
        _impl_map = {1: Plain}

    return PlainPool


@pytest.mark.parametrize("name", ["sched-fifo", "sched-simple"])
def test_a_pool_that_cannot_explain_costs_reasons_only(name, monkeypatch):
    monkeypatch.setattr(Scheduler, "pool_class", guide_pool())
    rig = Rig(R(1, 4), name)
    for jobid in (1, 2, 3):
        rig.arrive(jobid, jobspec(3, duration=60), wait=1)
    rig.free(1)
    assert rig.started() == [1, 2]
    assert rig.shown(3).keys() == {"t_estimate"}
    assert rig.logged(ERR) == []
    assert len(rig.logged(WARNING)) == 1
    rig.alloc(4, jobspec(3, duration=60))
    second = rig.explain(3)
    assert (second["verdict"], second["reason"]) == ("waits", "insufficient resources")
    assert "behind" in rig.explain(4)["reason"]
    errnum, text = rig.ask("sched.stats", {})
    assert errnum and text == "the pool of this scheduler has no PlainPool.eligible"
    assert rig.logged(ERR) == []


@pytest.mark.parametrize("reloaded", [False, True])
@pytest.mark.parametrize(
    "config",
    [
        {"limits": {"a": {"per": "user", "max": {"nodes": 1}}}},
        {"licenses": {"a": 1}},
        {"budgets": {"a": {"per": "user", "period": "day", "max": {"node-hours": 9}}}},
        {"fairshare": {"a": "1h"}},
        {"sharing": {"a": {"mode": "free"}}},
        {"sharing": {"a": {"mode": "node"}}},
        {"reservations": {"a": {"start": "2030-01-01T08:00", "duration": "1h", "nodes": 1}}},
    ],
    ids=lambda config: "".join(config),
)
def test_tables_that_need_more_than_the_pool_has_are_told(config, reloaded, monkeypatch):
    monkeypatch.setattr(Scheduler, "pool_class", guide_pool())
    args = ["order=queue"] * reloaded  # for which the pool lacks something, too
    rig = Rig(R(1, 4), "sched-fifo", *args, config={} if reloaded else config, estimates=False)
    if reloaded:
        rig.reconfigure(config)
    rig.arrive(1, jobspec(1, duration=60))
    assert rig.started() == [1]
    (fault,) = rig.logged(ERR)
    assert fault.startswith(f"configuration: [{''.join(config)}.a] ")
    assert "the pool of this scheduler cannot " in fault
    assert rig.answer("check-config", config=config)["faults"] == [fault]
    assert rig.answer("reservations")["reservations"] == []


def test_backfill_ends_in_order_with_a_pool_that_cannot_plan(monkeypatch):
    monkeypatch.setattr(Scheduler, "pool_class", guide_pool())
    rig = Rig(R(1, 4))
    rig.load("sched-backfill", wait=False)
    rig.settle()
    rig.arrive(1, jobspec(1))
    assert rig.task.failure is None
    said = "sched-backfill needs a pool that can plan(), which PlainPool cannot: it ends here"
    assert rig.logged(CRIT) == [said]
    assert rig.task.ended


def test_resources_of_running_jobs_are_not_a_pool_each_while_a_scheduler_starts(only_new_objects):
    """A pool has entries for each rank of the machine: a pool for each of 10,000 jobs would take more
    memory than all the rest of a scheduler, and a process does not return memory."""
    found = {}

    class Reader(AdmissionRule):
        def hello(self, job):
            assert job.R.node_kinds() == [(1, 0, 1 << job.jobid)]
            if job.jobid == jobs:  # the last
                gc.collect()
                kept = [isinstance(one, (RankIndex, Inventory)) for one in gc.get_objects()]
                found[jobs] = sum(kept)

    for jobs in (8, 32):
        rig = Rig(R(33, 4))
        for jobid in range(1, jobs + 1):
            rig.will_be_found(jobid, R(str(jobid), "0"))
        rig.load(ruled(Backfill, Reader))
        assert len(rig.sched.resources.job_end_times()) == jobs
        del rig
    assert found[8] == found[32]
