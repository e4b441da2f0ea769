# SPDX-License-Identifier: LGPL-3.0-or-later
"""The requirements of the RFCs on a scheduler: each case is a function of a `Rig`, and raises `Failure` if it is violated.

A new case is a function with the decorator `case`; its docstring is the line of the table. The inventory is four ranks with four
cores and a GPU each, all up, unless the case says otherwise.
"""

import errno
import time

from rig import ANNOTATE, CANCEL, DENY, Failure, NotOffered, check, held, make_R, part_of
from rig import jobspec as make_jobspec

from flux.hostlist import Hostlist

#: name -> Case, in the order of the table
CASES = {}


class Case:
    """One case.

    Attributes:
        name (str): of the function, with hyphens
        rfc (str): the RFC that requires it
        text (str): the requirement
    """

    def __init__(self, function, rfc):
        self.name = function.__name__.replace("_", "-")
        self.rfc = rfc
        self.text = function.__doc__.partition("\n")[0]
        self.run = function


def case(rfc):
    def add(function):
        one = Case(function, rfc)
        CASES[one.name] = one
        return function

    return add


def on_ranks(R, ranks, why):
    check({rank for rank, _ in held(R)} == ranks, why, R)


# -- the start ---------------------------------------------------------------------------------------


@case("RFC 27, 28")
def handshake(rig):
    """it asks for resources, says hello, then says ready, each once"""
    rig.load()
    wanted = ["resource.acquire", "job-manager.sched-hello", "job-manager.sched-ready"]
    check([one for one in rig.topics if one in wanted] == wanted, "it has asked for", rig.topics)


@case("RFC 27")
def ready_payload(rig):
    """ready has the mode unlimited, or limited with a limit of 1 or more"""
    rig.load()
    mode, limit = rig.ready.get("mode"), rig.ready.get("limit")
    good = mode == "limited" and type(limit) is int and limit > 0
    check(good or (mode == "unlimited" and limit is None), "job-manager.sched-ready", rig.ready)


@case("RFC 28")
def acquire_refused(rig):
    """it ends if it gets no resources"""
    rig.refuse["resource.acquire"] = errno.EBUSY
    rig.load_in_vain()


@case("RFC 27")
def hello_refused(rig):
    """it ends if hello is refused"""
    rig.refuse["job-manager.sched-hello"] = errno.EPROTO
    rig.load_in_vain()


@case("RFC 27")
def ready_refused(rig):
    """it ends if ready is refused"""
    rig.refuse["job-manager.sched-ready"] = errno.EPROTO
    rig.load_in_vain()


# -- an allocation -----------------------------------------------------------------------------------


@case("RFC 27")
def alloc_success(rig):
    """a job that fits is answered once, by type 0, with R in the KVS"""
    rig.load()
    rig.alloc(1, slots=2)
    R = rig.success(1)
    check(len(held(R)) == 2 and held(R) <= held(rig.R), "job 1 asked for 2 cores", R)
    rig.settle()
    rig.final(1, 0, "it fits")


@case("RFC 27")
def alloc_R_in_answer(rig):
    """the answer has the R that is in the KVS"""
    rig.load()
    rig.alloc(1, nodes=2, slots=2)
    R = rig.success(1)
    answer = rig.finals(1)[0]
    check(answer.get("R") == R, "type 0 without the R of the KVS", answer)


@case("RFC 20")
def R_is_legal(rig):
    """R has version 1, whole execution keys, and the hosts of its ranks in their order"""
    rig.load()
    rig.alloc(1, nodes=3, cores=4)
    R = rig.success(1)
    check(R.get("version") == 1 and len(held(R)) == 12, "R of 3 nodes with 4 cores", R)
    keys = {"R_lite", "starttime", "expiration", "nodelist"}
    check(keys <= set(R["execution"]), f"R without all of {sorted(keys)}", R)
    hosts = list(Hostlist(",".join(R["execution"]["nodelist"])))
    ranks = sorted({rank for rank, _ in held(R)})
    check(hosts == [f"n{rank}" for rank in ranks], f"hosts of ranks {ranks}", R)


@case("RFC 20, 25")
def R_has_the_duration(rig):
    """expiration is starttime and the duration of the jobspec"""
    rig.load()
    rig.alloc(1, duration=600.0)
    execution = rig.success(1)["execution"]
    check(abs(execution["starttime"] - time.time()) < 60, "starttime is not now", execution)
    seconds = execution["expiration"] - execution["starttime"]
    check(abs(seconds - 600) <= 1, "a duration of 600 s", execution)


@case("RFC 20, 28")
def end_of_resources(rig):
    """a job without a duration ends with the resources"""
    end = float(int(time.time()) + 5000)
    rig.R = make_R(range(4), end=end)
    rig.load()
    rig.alloc(1, duration=0.0)
    R = rig.success(1)
    check(abs(R["execution"]["expiration"] - end) <= 1, f"the resources end at {end}", R)


@case("RFC 20")
def local_properties(rig):
    """properties that begin with + are left out of R, others are kept"""
    rig.R = make_R(range(4), properties={"+here": "0-3", "fast": "0-3"})
    rig.load()
    rig.alloc(1, nodes=1)
    R = rig.success(1)
    found = set(R["execution"].get("properties", {}))
    check(found == {"fast"}, "R of ranks with the properties +here and fast", R)


@case("RFC 14, 20")
def gpus(rig):
    """GPUs that were asked for are in R, and are given once"""
    rig.load()
    jobs = range(1, 6)
    for jobid in jobs:
        rig.alloc(jobid, gpus=1)
    rig.until(lambda: sum(len(rig.finals(one)) for one in jobs) >= 4)
    rig.settle()
    given = []
    for jobid in filter(rig.finals, jobs):
        given += held(rig.success(jobid), "gpu")
    text = f"5 jobs asked for one of 4 GPUs each; given: {given}"
    check(len(given) == len(set(given)) == 4, text)


@case("RFC 27")
def nothing_twice(rig):
    """no core is given to two jobs"""
    rig.load()
    limit = rig.ready.get("limit", 99)
    given, jobs = set(), range(1, 10)
    for jobid in jobs:
        rig.alloc(jobid, slots=2)
        if jobid % min(limit, 4) == 0:
            rig.until(lambda due=jobid: sum(bool(rig.finals(one)) for one in jobs) >= min(due, 8))
    rig.settle()
    started = [jobid for jobid in jobs if rig.finals(jobid)]
    for jobid in started:
        cores = held(rig.success(jobid))
        check(not cores & given, f"job {jobid} gets cores of another", rig.finals(jobid)[0])
        given |= cores
    check(len(started) == 8, f"9 jobs of 2 cores on 16 cores; started: {started}")


@case("RFC 31")
def constraint(rig):
    """a job that asks for a property gets ranks that have it"""
    rig.R = make_R(range(4), properties={"fast": "2"})
    rig.load()
    rig.alloc(1, slots=2, constraint={"properties": ["fast"]})
    on_ranks(rig.success(1), {2}, "only rank 2 is fast")


# -- a denial ----------------------------------------------------------------------------------------


@case("RFC 27")
def deny(rig):
    """a job that can never run is denied, by type 2 with a note"""
    rig.load()
    rig.alloc(1, nodes=5)
    answer = rig.final(1, DENY, "5 nodes of 4")
    check(isinstance(answer.get("note"), str) and answer["note"], "type 2 without a note", answer)


@case("RFC 27")
def deny_unreadable(rig):
    """a jobspec that it cannot read is denied, not answered by an error"""
    rig.load()
    rig.alloc(1, spec={"version": 1, "resources": [{"type": "rack", "count": "many"}], "tasks": []})
    rig.final(1, DENY, "its jobspec makes no sense")
    rig.alloc(2)
    rig.success(2, "a job before it had an unreadable jobspec")


# -- waiting -----------------------------------------------------------------------------------------


def load_full(rig):
    """Load the scheduler, and let job 100 have everything; returns its R."""
    rig.load()
    rig.alloc(100, nodes=4, cores=4)
    return rig.success(100)


@case("RFC 27")
def free_starts_the_next(rig):
    """a job waits while others hold resources that it needs, and starts when these are free"""
    R = load_full(rig)
    rig.alloc(1)
    rig.waits(1, "all cores are held by job 100")
    rig.free(100, R)
    rig.success(1, "job 100 has freed all")


@case("RFC 27")
def free_is_not_answered(rig):
    """sched.free is not answered"""
    rig.free(100, load_full(rig))
    rig.settle()
    errors = [one for one in rig.errors if one[0] == "sched.free"]
    check(not rig.replies and not errors, "an answer to sched.free", *rig.replies, *errors)


@case("RFC 27")
def free_of_an_unknown_job(rig):
    """a free of a job that it does not know changes nothing"""
    R = load_full(rig)
    rig.free(77, part_of(R, {0}))
    rig.alloc(1)
    rig.waits(1, "a job that holds nothing has freed rank 0")
    rig.free(100, R)
    rig.success(1, "job 100 has freed all")


@case("RFC 27")
def partial_free(rig):
    """ranks that come back before the others are given out, the others are not"""
    R = load_full(rig)
    rig.free(100, part_of(R, {0}), final=False)
    rig.alloc(1, nodes=1, cores=4)
    on_ranks(rig.success(1, "rank 0 was freed"), {0}, "only rank 0 is free")
    rig.alloc(2, nodes=1, cores=4)
    rig.waits(2, "ranks 1-3 are held by job 100")
    rig.free(100, part_of(R, {1, 2, 3}))
    rig.success(2, "job 100 has freed the rest")


@case("RFC 27")
def priority_order(rig):
    """of two that wait, the one with the higher priority starts first"""
    R = load_full(rig)
    rig.alloc(1, priority=10, nodes=4, cores=4)
    rig.alloc(2, priority=20, nodes=4, cores=4)
    rig.waits(1, "all cores are held")
    rig.free(100, R)
    rig.success(2, "it has the higher priority")
    rig.waits(1, "job 2 holds all cores")


@case("RFC 27")
def annotations_are_objects(rig):
    """annotations of a job that waits are objects, and none come after the final answer"""
    R = load_full(rig)
    rig.alloc(1)
    rig.waits(1, "all cores are held")
    notes = [one for one in rig.answers[1] if one.get("type") == ANNOTATE]
    for one in notes:
        check(isinstance(one.get("annotations"), dict), "type 1 without annotations", one)
    rig.free(100, R)
    rig.success(1, "job 100 has freed all")
    rig.settle()
    check(rig.answers[1][-1].get("type") == 0, "an answer after the final one", rig.answers[1][-1])


@case("RFC 27")
def annotations_of_the_past(rig):
    """a job that starts no longer has the reason and the estimate of its wait"""
    R = load_full(rig)
    rig.alloc(1)
    rig.until(lambda: rig.answers[1], 2.5)
    rig.free(100, R)
    rig.success(1, "job 100 has freed all")
    merged = {}
    for one in rig.answers[1]:
        merged.update((one.get("annotations") or {}).get("sched") or {})
    left = {key for key in ("reason_pending", "t_estimate") if merged.get(key) is not None}
    check(not left, f"still there: {sorted(left)}", rig.answers[1][-1])


# -- cancel, prioritize ------------------------------------------------------------------------------


@case("RFC 27")
def cancel_of_a_waiting_job(rig):
    """sched.cancel: the request is answered by type 3 with nothing else, and the job does not start later"""
    R = load_full(rig)
    rig.alloc(1)
    rig.waits(1, "all cores are held")
    rig.cancel(1)
    answer = rig.final(1, CANCEL, "it was cancelled")
    check(set(answer) == {"id", "type"}, "type 3 with more than id and type", answer)
    rig.free(100, R)
    rig.settle()
    rig.final(1, CANCEL, "it was cancelled")
    rig.alloc(2, nodes=4, cores=4)
    rig.success(2, "a cancelled job holds nothing")


@case("RFC 27")
def cancel_of_an_unknown_job(rig):
    """sched.cancel of a job without a request changes nothing"""
    rig.load()
    rig.cancel(77)
    rig.alloc(1)
    R = rig.success(1)
    rig.cancel(1)
    rig.settle()
    rig.final(1, 0, "it had been answered before it was cancelled")
    rig.free(1, R)
    rig.alloc(2)
    rig.success(2)


@case("RFC 27")
def cancel_in_flight(rig):
    """a cancel that crosses the answer: one final answer, and nothing is lost"""
    rig.load()
    for jobid in range(1, 5):
        rig.alloc(jobid, nodes=4, cores=4)
        rig.cancel(jobid)
        check(rig.until(lambda one=jobid: rig.finals(one)), f"job {jobid}: no final answer")
        rig.settle()
        finals = rig.finals(jobid)
        check(len(finals) == 1, f"job {jobid}: {len(finals)} final answers", *finals)
        check(finals[0]["type"] in (0, CANCEL), f"job {jobid} was cancelled", finals[0])
        if finals[0]["type"] == 0:
            rig.free(jobid, rig.success(jobid))
    rig.alloc(9, nodes=4, cores=4)
    rig.success(9, "all jobs before it were cancelled, or freed what they had")


def load_full_and_raise(rig, *priorities):
    """Of jobs that want all cores, one has priority 20, two 10; then others, and all cores come free."""
    R = load_full(rig)
    rig.alloc(1, priority=20, nodes=4, cores=4)
    rig.alloc(2, priority=10, nodes=4, cores=4)
    rig.waits(2, "all cores are held")
    rig.prioritize(*priorities)
    rig.settle()
    rig.free(100, R)


@case("RFC 27")
def prioritize(rig):
    """sched.prioritize: a job that was raised starts before the others"""
    load_full_and_raise(rig, (2, 30))
    rig.success(2, "its priority was raised from 10 to 30, above the 20 of job 1")
    rig.waits(1, "job 2 holds all cores")


@case("RFC 27")
def prioritize_of_an_unknown_job(rig):
    """sched.prioritize: a job without a request is passed over, the others are not"""
    load_full_and_raise(rig, (77, 5), (2, 30))
    rig.success(2, "its priority was raised above that of job 1")


# -- jobs that run already ---------------------------------------------------------------------------


def R_found(ranks=(0, 1, 2, 3), **more):
    """R of a job that has hours left."""
    return make_R(ranks, start=1.0, end=time.time() + 9999, **more)


def job_found(R, jobid=50, **keys):
    return {"id": jobid, "priority": 16, "userid": 0, "t_submit": 1.5, "R": R, **keys}


def needs_partial_ok(rig):
    if not rig.hello.get("partial-ok"):
        raise NotOffered("hello without partial-ok: the job manager ends housekeeping first")


@case("RFC 27")
def hello_with_a_running_job(rig):
    """resources of a job found running are not allocated until they are freed"""
    R = R_found()
    rig.running = [job_found(R)]
    rig.load()
    check(not rig.raised, "an exception on a job with a good R", *rig.raised)
    rig.alloc(1)
    rig.waits(1, "job 50 holds all cores")
    rig.free(50, R)
    rig.success(1, "job 50 has freed all")


@case("RFC 27")
def hello_with_a_part_freed(rig):
    """ranks that a job found running has freed already (housekeeping) are given out, the others when they come"""
    R = R_found()
    rig.running = [job_found(R, free="0")]
    rig.load()
    needs_partial_ok(rig)
    rig.alloc(1, nodes=1, cores=4)
    on_ranks(rig.success(1, "hello says that rank 0 of job 50 is free"), {0}, "only rank 0 is free")
    rig.alloc(2, nodes=1, cores=4)
    rig.waits(2, "ranks 1-3 are held by job 50")
    rig.free(50, part_of(R, {1, 2}), final=False)
    rig.success(2, "ranks 1-2 of job 50 came back")
    rig.free(50, part_of(R, {3}))
    rig.alloc(3, nodes=1, cores=4)
    rig.success(3, "the last rank of job 50 came back")


@case("RFC 27")
def hello_with_a_straggler(rig):
    """a rank still in housekeeping is not allocated, although a queue over it was added meanwhile

    The history of flux-core#7794 and flux-sched#1558: queues pall (stopped) and pbatch over all nodes, rank 1 of a job of four in
    housekeeping, a queue pdat over ranks 1-2 is configured, the scheduler is loaded anew.
    """
    before = {"pall": "0-3", "pbatch": "0-3"}
    R = R_found(properties=before)
    rig.R = make_R([0, 1, 2, 3], properties={**before, "pdat": "1-2"})
    rig.running = [job_found(R, free="0,2-3")]
    rig.load()
    needs_partial_ok(rig)
    rig.alloc(1, nodes=4, cores=4, constraint={"properties": ["pbatch"]})
    rig.waits(1, "rank 1 is held by job 50")
    rig.cancel(1)
    rig.final(1, CANCEL, "it was canceled")
    rig.alloc(2, nodes=1, cores=4, constraint={"properties": ["pdat"]})
    on_ranks(rig.success(2, "rank 2 is free"), {2}, "of pdat only rank 2 is free")
    rig.alloc(3, nodes=1, cores=4, constraint={"properties": ["pdat"]})
    rig.waits(3, "rank 1 is held by job 50, rank 2 by job 2")
    rig.free(50, part_of(R, {1}))
    rig.success(3, "rank 1 of job 50 came back")


@case("RFC 27")
def hello_with_a_lost_rank(rig):
    """a job found running on a rank that is gone gets an exception, and the others are taken over"""
    rig.running = [job_found(R_found([9]), 50), job_found(R_found([0, 1, 2]), 51)]
    rig.load()
    rig.until(lambda: rig.raised)
    first = rig.raised and rig.raised[0]["id"]
    check(first == 50, "job 50 has a rank that is not there", *rig.raised)
    check(rig.raised[0].get("severity") == 0, "an exception that does not end the job", *rig.raised)
    rig.alloc(1, nodes=1, cores=4)
    on_ranks(rig.success(1, "rank 3 is free"), {3}, "job 51 holds ranks 0-2")


# -- resources that change ---------------------------------------------------------------------------


@case("RFC 28")
def down_at_first(rig):
    """ranks that are not up at first are not used until they come up"""
    rig.up = "0-2"
    rig.load()
    rig.alloc(1, nodes=4)
    rig.waits(1, "rank 3 is not up")
    rig.update(up="3")
    rig.success(1, "rank 3 has come up")


@case("RFC 28")
def down_later(rig):
    """ranks that go down are not used until they come up"""
    rig.load()
    rig.update(down="0-2")
    rig.settle()
    rig.alloc(1)
    on_ranks(rig.success(1, "rank 3 is up"), {3}, "ranks 0-2 are down")
    rig.alloc(2, nodes=2)
    rig.waits(2, "one rank is up")
    rig.update(up="1")
    rig.success(2, "rank 1 has come up")


@case("RFC 28")
def down_while_allocated(rig):
    """a rank that goes down stays with its job; once freed it is not used until it comes up"""
    R = load_full(rig)
    before = len(rig.answers[100]), len(rig.raised)
    rig.update(down="0-3")
    rig.settle()
    check((len(rig.answers[100]), len(rig.raised)) == before, "job 100 was told", *rig.raised)
    rig.free(100, R)
    rig.alloc(1)
    rig.waits(1, "all ranks are down")
    rig.update(up="2")
    on_ranks(rig.success(1, "rank 2 has come up"), {2}, "only rank 2 is up")


@case("RFC 28")
def shrink(rig):
    """a job that waits, and can never run after ranks are gone for good, is denied"""
    R = load_full(rig)
    rig.alloc(1, nodes=4)
    rig.waits(1, "all cores are held")
    rig.update(down="3", shrink="3")
    rig.settle()
    rig.free(100, part_of(R, {0, 1, 2, 3}))
    rig.final(1, DENY, "4 nodes; 3 are left")


@case("RFC 28, 31")
def property_added(rig):
    """a rank that gets a property is used for a job that asks for it"""
    rig.R = make_R(range(4), properties={"fast": "0"})
    rig.load()
    rig.alloc(100, nodes=1, cores=4, constraint={"properties": ["fast"]})
    rig.success(100)
    rig.alloc(1, nodes=1, cores=4, constraint={"properties": ["fast"]})
    rig.waits(1, "the only fast rank is held")
    rig.update(property_add={"fast": "2"})
    on_ranks(rig.success(1, "rank 2 has become fast"), {2}, "only rank 2 is fast and free")


@case("RFC 28")
def acquire_ends(rig):
    """it ends if the stream of resources ends"""
    rig.load()
    rig.h.respond_error(rig.acquire, errno.ENODATA, "the conformance kit ends the stream")
    check(rig.until(lambda: not rig.is_there()), "resource.acquire has ended; it goes on")
    rig.loaded = False
    rig.until(rig.is_gone)


# -- questions ---------------------------------------------------------------------------------------


@case("RFC 27")
def expiration(rig):
    """sched.expiration of a running job is answered"""
    rig.load()
    rig.alloc(1)
    rig.success(1)
    errnum, text = rig.ask("sched.expiration", {"id": 1, "expiration": int(time.time()) + 99})
    check(errnum in (0, errno.ENOSYS), f"refused with errno {errnum}: {text}")


def ask_feasibility(rig, **shape):
    found = rig.ask("feasibility.check", {"jobspec": make_jobspec(**shape)})
    if found[0] == errno.ENOSYS:
        raise NotOffered("no service feasibility")
    return found


@case("RFC 27")
def feasibility(rig):
    """feasibility.check: no error for a job that could run on the empty machine, even if ranks are down"""
    load_full(rig)
    rig.update(down="1")
    rig.settle()
    errnum, text = ask_feasibility(rig, nodes=4, cores=4)
    check(not errnum, f"4 nodes of 4: errno {errnum}: {text}")


@case("RFC 27")
def feasibility_denied(rig):
    """feasibility.check: an error with a text for a job that can never run"""
    rig.load()
    errnum, text = ask_feasibility(rig, nodes=5)
    check(errnum, "5 nodes of 4: no error", text)
    check(text, f"5 nodes of 4: errno {errnum} without a text")


# -- the end -----------------------------------------------------------------------------------------


@case("RFC 27")
def unload(rig):
    """on removal it answers no open request, and the next scheduler takes over the running jobs"""
    rig.load()
    rig.alloc(100, nodes=3, cores=4)
    R = rig.success(100)
    rig.alloc(1, nodes=4)
    rig.waits(1, "job 100 holds three nodes")
    rig.unload()
    check(not rig.is_there(), "removed, the service sched is still held")
    check(not rig.finals(1), "answered on the way out", *rig.finals(1))
    rig.running = [job_found(R, 100)]
    rig.ready = rig.hello = None
    del rig.topics[:]
    rig.load()
    rig.alloc(2, nodes=4)
    rig.waits(2, "job 100 holds three nodes")
    rig.free(100, R)
    rig.success(2, "job 100 has freed all")


def run(one, rig):
    """Run a case; returns ("pass", "fail" or "without", text)."""
    try:
        with rig:
            one.run(rig)
    except Failure as exc:
        return "fail", str(exc)
    except NotOffered as exc:
        return "without", str(exc)
    return "pass", ""
