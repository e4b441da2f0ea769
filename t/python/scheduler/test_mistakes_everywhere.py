# SPDX-License-Identifier: LGPL-3.0-or-later
"""Mistakes of a policy's author are reported in the same words by a test, by a simulation, which fails, and by an instance, which
logs them."""

import contextlib
import io
import json
import re
import signal
import textwrap

import pytest

from flux.scheduler.testing import EndlessLoop, FakeInstance, jobspec, make_R
from flux.simulate import policy
from flux.simulate.run import Settings, simulate
from flux.simulate.trace import Trace
from flux_embedded.broker.attrs import AttrTable
from flux_embedded.broker.instance import Instance
from flux_engine.kernel import reactor, watchdog
from flux_engine.kernel.clock import VirtualClock

MODULE = """
import sys, time
from flux.resource import ResourcePool
from flux.scheduler import Scheduler
from flux.scheduler.admission import AdmissionRule
from flux.scheduler.policies import Backfill

def R_on(rank, cores="0"):
    lite = [{{"rank": f"{{rank}}", "children": {{"core": cores}}}}]
    return {{"version": 1, "execution": {{"R_lite": lite, "starttime": 0, "expiration": 0, "nodelist": [f"n{{rank}}"]}}}}

class Mine({base}):
{members}

def mod_main(h, *args):
    {main}
"""


def module(members, base="Scheduler", main="Mine(h, *args).run()"):
    return MODULE.format(base=base, members=textwrap.indent(members, "    "), main=main)


def schedule(*lines):
    """A policy whose schedule() has these lines."""
    return module("def schedule(self):\n" + textwrap.indent("\n".join(lines), "    "))


def answers(what):
    """A policy that does this with each job of its queue."""
    names = (
        "job = self._queue.pop(0)",
        "request, alloc = job.request, lambda: self.resources.alloc(job.jobid, job.resource_request)",
        what,
    )
    return schedule("while self._queue:", *(f"    {line}" for line in names))


def responds(payload):
    return answers(f"self.handle.respond(request.msg, {payload})")


def succeeds(R):
    return answers(f"request.success({R})")


def defines(*lines):
    """A backfilling policy that overrides something."""
    return module("\n".join(lines), "Backfill")


def at_init(line):
    """A backfilling policy that does this when it has been set up."""
    return defines("def __init__(self, h, *args):", "    super().__init__(h, *args)", f"    {line}")


def for_each_job(deed):
    """A backfilling policy that does this with each pending job ahead of a pass."""
    loop = f"    for job in self.pending_jobs(): {deed}"
    return defines("def schedule(self):", loop, "    return super().schedule()")


def with_pool(member):
    """A backfilling policy with a class of pools that has this member."""
    return defines("class Odd(ResourcePool):", f"    {member}", "pool_class = Odd")


def with_rule(method):
    """A backfilling policy with an admission rule that has this method."""
    return defines(
        "def __init__(self, h, *args):",
        "    super().__init__(h, *args)",
        "    class Odd(AdmissionRule):",
        "        name = 'odd'",
        f"        {method}",
        "    self.add_rule(Odd(self))",
    )


#: Mistake -> (the module's text, the message).
MISTAKES = {
    "no R": (succeeds("None"), "malformed sched.alloc response: R: expected an object with execution, got None"),
    "text for R": (succeeds("'R'"), "malformed sched.alloc response: R: expected .* got 'R'"),
    "an empty R": (succeeds("{'version': 1, 'execution': {'R_lite': []}}"), "execution.R_lite: empty"),
    "an R of no rank": (succeeds("R_on('')"), "R_lite.rank"),
    "an R with a rank that is no idset": (succeeds("R_on('x')"), "invalid idset 'x'"),
    "an R without hosts": (
        succeeds("{'version': 1, 'execution': {'R_lite': R_on(0)['execution']['R_lite']}}"),
        "execution.nodelist: expected an array of hostlists",
    ),
    "an R of another version": (succeeds("{**R_on(0), 'version': 2}"), "R: version: expected 1, got 2"),
    "an invented rank": (succeeds("R_on(7)"), r"sched.alloc response for job [ƒf]\w+: the instance has no rank 7"),
    "invented cores": (succeeds("R_on(0, '0-9')"), "rank 0 has no core 0-9"),
    "a core that somebody has": (succeeds("R_on(1)"), r"core 0 of rank 1 is job [ƒf]\w+'s"),
    "all that there is, to each": (succeeds("self.resources"), r"core 0 of rank 0-1 is job [ƒf]\w+'s"),
    "an answer without a type": (responds("{'id': job.jobid}"), "malformed .*: type: expected 0 to 3"),
    "an answer of an unknown type": (responds("{'id': job.jobid, 'type': 9}"), "malformed .*: type: expected 0 to 3"),
    "an answer without a job": (responds("{'type': 2}"), "malformed .*: id: expected a job id"),
    "annotations that are none": (responds("{'id': job.jobid, 'type': 1, 'annotations': 'x'}"), "malformed .*: annotations: expected an object"),
    "a list for an answer": (responds("[1]"), "malformed .*: expected an object"),
    "an answer that is no JSON": (responds("'{'"), "malformed sched.alloc response"),
    "an error for an answer": (answers("self.handle.respond_error(request.msg, 22, 'not today')"), "job-manager: sched.alloc: not today"),
    "no reason": (answers("request.deny(None)"), "denied, and its user is not told why"),
    "two refusals": (
        answers("self.alloc_deny(request.msg, 'no'); self.alloc_deny(request.msg, 'no')"),
        "it has no open request: a request is answered once, and nothing follows the answer",
    ),
    "two successes": (
        answers("one = alloc(); request.success(one); request.success(one)"),
        "success of a request that is succeeded: it is answered once",
    ),
    "a refusal after success": (answers("request.success(alloc()); request.deny('no')"), "deny of a request that is succeeded: it is answered once"),
    "a success after a refusal": (answers("request.deny('no'); request.success(alloc())"), "success of a request that is denied: it is answered"),
    "two allocations": (answers("[alloc() for _ in range(2)]"), "already has an allocation"),
    "an allocation that is not answered": (answers("alloc()"), "InsufficientResources"),
    "an annotation that is no JSON": (answers("self.alloc_annotate(request.msg, {'a': {1}})"), "not JSON serializable"),
    "an annotation of a start that is no JSON": (answers("request.success(alloc(), {'a': {1}})"), "not JSON serializable"),
    "text is yielded": (schedule("yield 'text'"), "'text' was yielded: expected a plain yield, or seconds to pause"),
    "a yield is told with its line": (schedule("yield 'text'"), r"in schedule\n.* yield 'text'"),
    "a list is yielded": (schedule("yield [1]"), "was yielded: expected a plain yield"),
    "NaN is yielded": (schedule("yield float('nan')"), "nan was yielded: expected a plain yield"),
    "an endless pause": (schedule("yield float('inf')"), "inf was yielded: expected a plain yield"),
    "True is yielded": (schedule("yield True"), "True was yielded: expected a plain yield"),
    "a list is returned": (schedule("return [1]"), "was returned: expected nothing, or a generator"),
    "a pass that never ends": (schedule("while True:", "    yield"), "the scheduler does not come to rest"),
    "another argument": (module("def schedule(self, now):\n    pass"), r"Mine.schedule\(\) cannot be called as the library's is: missing a required argument: 'now'"),
    "no argument": (module("def schedule():\n    pass"), r"Mine.schedule\(\) cannot be called .*: too many positional"),
    "an exception": (schedule("raise KeyError('my own mistake')"), "KeyError: 'my own mistake'"),
    "an exception later": (schedule("yield", "raise KeyError('my own mistake')"), "KeyError: 'my own mistake'"),
    "an exit": (schedule("sys.exit(3)"), r"schedule: this pass is lost\n[^$]*SystemExit: 3"),
    "an exit in a hook": (module("def alloc(self, request, *args):\n    sys.exit(bool(request))"), r"alloc: ƒ\w+\n[^$]*SystemExit: True"),
    "a service that is not there": (schedule("self.handle.rpc('nobody.ask').get()"), "No service matching nobody.ask"),
    "a misspelled schedule()": (module("def shedule(self):\n    pass"), r"is never called: is schedule\(\) meant"),
    "a generator that is dropped": (
        defines("def schedule(self): self.start_in_order()"), r"does nothing by start_in_order\(\), a generator: return it",
    ),
    "a schedule() that drops the library's": (
        defines("def schedule(self): super().schedule()"), r"does nothing by schedule\(\), a generator: return it",
    ),
    "a generator that returns another": (
        defines("def schedule(self):", "    yield", "    return super().schedule()"), r"schedule\(\) was returned by a generator: write `yield from`",
    ),
    "reasons that are dropped": (defines("def forecast(self): self.reasons()"), r"does nothing by reasons\(\), a generator: return it"),
    "a free() with a yield": (
        defines("def free(self, jobid, R, final):", "    super().free(jobid, R, final)", "    yield"), r"Mine.free\(\) is never run: a `yield` makes it a generator",
    ),
    "an async schedule()": (module("async def schedule(self): pass"), r"Mine.schedule\(\) is never run: write `def` in place of `async def`"),
    "a method of a rule with a yield": (with_rule("def free(self, jobid, R, final): yield"), r"Odd.free\(\) is never run: a `yield`"),
    "a pause that blocks": (schedule("time.sleep(0)"), r"Mine.schedule\(\): during time.sleep\(\) no message is answered: `yield` seconds"),
    "an answer that is waited for": (
        with_rule("def alloc(self, job, attributes): self.h.rpc('any', dict(a=1)).get()"), r"Odd.alloc\(\): during rpc\(\).get\(\) no message is answered: use",
    ),
    "a call in the place of a function": (
        defines("def schedule(self): self.call_at(9, self.look_again())"), r"call_at\(\): expected a function, got None \(are there parentheses",
    ),
    "an alloc() that drops the request": (
        defines("def alloc(self, request, jobid, *others): self.seen = jobid"), r"Mine.alloc\(\) does not use its request: the job is not answered",
    ),
    "a name instead of names": (defines("keep_attributes = 'bank'"), r"Mine.keep_attributes='bank': expected names in a tuple: \('bank',\)"),
    "the class of a rule": (at_init("self.add_rule(AdmissionRule)"), r"add_rule\(\): expected an AdmissionRule, got <class"),
    "a misspelled hook": (defines("def resource_updatd(self): pass"), r"is resource_update\(\) meant"),
    "a misspelled method of a rule": (with_rule("def chek(self, job): pass"), r"is check\(\) meant"),
    "letters in another order": (with_rule("def chekc(self, job): pass"), r"is check\(\) meant"),
    "a misspelled hook of a pool": (
        with_pool("def _sort_candidate(self, candidates): pass"),
        r"Odd._sort_candidate\(\) is never called: is _sort_candidates\(\) meant",
    ),
    "implementations of a pool without the underscore": (
        with_pool("impl_map = {1: ResourcePool}"),
        r"Odd.impl_map is never used: is _impl_map meant",
    ),
    "a misspelled method of a placement": (
        defines(
            "class Coldest(ResourcePool):",
            "    from flux.resource.pool.placement import Placement",
            "    class Nearest(Placement):",
            "        def candidate(self, index, shape, eligible): pass",
            "    placement = Nearest()",
            "pool_class = Coldest",
        ),
        r"Nearest.candidate\(\) is never called: is candidates\(\) meant",
    ),
    "a hook of a pool without its underscore": (
        with_pool("def sort_candidates(self, candidates): pass"),
        r"Odd.sort_candidates\(\) is never called: is _sort_candidates\(\) meant",
    ),
    "a free() of a pool without super()": (
        with_pool("def free(self, jobid, R=None, final=False): pass"),
        r"Odd.free\(\) does not call super\(\).free\(\): resources stay",
    ),
    "a mark_down() of a pool without super()": (
        with_pool("def mark_down(self, ids): self.log = ids"),
        r"Odd.mark_down\(\) does not call super\(\).mark_down\(\): jobs start on ranks that are down",
    ),
    "a choice by what the pool has counted": (
        with_pool("def _select_resources(self, candidates, request): return [], 0"),
        r"pool class Odd: no place for [ƒf]\w+ even with all resources free.*: a hook or placement may depend on its arguments alone",
    ),
    "a copy that is none": (
        with_pool("def copy(self): return self"),
        r"Odd.copy\(\) does not call super\(\).copy\(\): what is tried on a copy changes the pool itself",
    ),
    "options of a pool in a list": (defines("pool_kwargs = ['spread']"), r"pool_kwargs=\['spread'\]: expected a dict"),
    "None for a method": (defines("forecast = None"), r"Mine.forecast=None takes the place of the method forecast\(\)"),
    "text for a method": (defines("rank = 'shortest'"), r"Mine.rank='shortest' takes the place of the method rank\(\)"),
    "a dict for a method of a rule": (with_rule("stats = {}"), r"Odd.stats=\{\} takes the place of the method stats\(\)"),
    "a method for an attribute of a rule": (
        with_rule("def engaged(self): return False"), r"Odd.engaged\(\) takes the place of the attribute engaged",
    ),
    "an argument as an attribute": (
        defines("promise = 4"), r"Mine.promise is never used: pass it on as an argument, super\(\).__init__\(h, 'promise=4', \*args\)",
    ),
    "all arguments in one": (
        defines("def __init__(self, h, *args): super().__init__(h, args)"), r"argument \(\): expected text: super\(\).__init__\(h, \*args\)",
    ),
    "a priority of a queued job": (
        for_each_job("job.priority = 3"),
        r"priority of [ƒf]\w+: set while it is queued: override order\(\), and call reorder\(\)",
    ),
    "text for annotations": (answers("request.annotate('soon')"), r"annotate\(\): expected a dict, got 'soon'"),
    "a value for a function": (at_init("self.checkpoint('use', {}, print)"), r"checkpoint\('use'\): expected two functions, to dump and to load"),
    "a run time as text": (
        defines("def order(self, job): return self.expected_run(job)", "def predicted(self, job): return '5m'"),
        r"predicted run time of [ƒf]\w+ is '5m': expected a number",
    ),
    "a latest start since now": (
        defines(
            "def __init__(self, h, *args): super().__init__(h, 'promise=all', *args)",
            "def latest_start(self, job): return 3600",
        ),
        r"latest_start of [ƒf]\w+ is 3600: expected seconds since the epoch",
    ),
    "an estimate since now": (
        for_each_job("self.show_estimate(job, 60)"),
        r"show_estimate\([ƒf]\w+, 60\): expected seconds since the epoch: self.now\(\) \+ seconds",
    ),
    "a number for a reason": (for_each_job("self.show_reason(job, 5)"), r"show_reason\([ƒf]\w+, 5\): expected text or None"),
    "feasibility as a value": (
        with_pool("def _check_feasibility(self, request): return False"),
        r"_check_feasibility\(\) returned False: expected nothing, or an InfeasibleRequest that is raised",
    ),
    "a name of the library": (defines("def pending(self): pass"), r"Mine.pending takes the place of \w+.pending"),
    "NaN for an order": (defines("def order(self, job): return float('nan')"), "order.. returned nan, which cannot be sorted"),
    "None for an order": (defines("def order(self, job): pass"), "order.. returned None, which cannot be sorted"),
    "an order that raises": (defines("def order(self, job): return job.nothing"), "no attribute 'nothing'"),
    "a signature without a hash": (with_rule("def signature(self, job): return [1]"), r"signature.. returned \[1\]: expected something that can be hashed"),
    "a rule without super()": (with_rule("def __init__(self, host): self.mine = 0"), r"Odd.__init__\(\) does not call super\(\).__init__\(\)"),
    "an attribute of a rule with the name of a method": (
        with_rule("def __init__(self, host): super().__init__(host); self.start = {}"), "self.start={} takes the place of the method start",
    ),
    "a rule that raises": (with_rule("def check(self, job): return job.nothing"), "no attribute 'nothing'"),
    "a rule that returns a number": (with_rule("def check(self, job): return 7"), "check.. returned 7: expected a Deferral"),
    "a free() that raises": (
        defines("def free(self, jobid, R, final=False): super().free(jobid, R, final); raise KeyError('my own mistake')"), "KeyError: 'my own mistake'",
    ),
    "an alloc() that raises": (defines("def alloc(self, *args): raise KeyError('my own mistake')"), "KeyError: 'my own mistake'"),
    "a free() without its last argument": (defines("def free(self, jobid, R): super().free(jobid, R)"), r"Mine.free\(\) cannot be called .*: too many positional"),
    "a start() without annotations": (
        defines("def start(self, job, alloc): super().start(job, alloc)"), r"Mine.start\(\) cannot be called .*: got an unexpected keyword argument",
    ),
    "an alloc() with other arguments": (defines("def alloc(self, request): pass"), r"Mine.alloc\(\) cannot be called .*: too many positional"),
    "a mod_main() that raises": (module("pass", main="raise KeyError('my own mistake')"), "KeyError: 'my own mistake'"),
    "a class that is not given the handle": (module("pass", main="Mine().run()"), "missing 1 required positional argument: 'h'"),
    "an argument that is refused": (module("def __init__(self, h, *args):\n    raise ValueError('my own mistake')"), "my own mistake"),
    "an __init__() without super()": (module("def __init__(self, h, *args):\n    pass"), r"Mine.__init__\(\) does not call super\(\).__init__\(\)"),
    "no run()": (module("pass", main="Mine(h, *args)"), r"mod_main\(\)"),
    "an import that is not there": ("import no_such_thing", "No module named 'no_such_thing'"),
    "a module that is no Python": ("def schedule(:", "SyntaxError"),
    "a module with nothing in it": ("x = 1", r"mod_main\(\)"),
}  # fmt: skip

#: A method of the library that is overridden without super() -> the message.
WITHOUT_SUPER = {
    "start(self, job, alloc, **told)": "no job is told that it starts",
    "alloc_success(self, msg, R, annotations=None)": "no job is told that it starts",
    "alloc_deny(self, msg, note=None)": "a job that is denied goes on waiting",
    "alloc_cancel(self, msg)": "a canceled job goes on waiting",
    "free(self, jobid, R, final)": "resources stay",
    "cancel(self, jobid)": "a canceled job goes on",
    "prioritize(self, jobs)": "priorities of waiting jobs stay",
    "released(self)": "a job may wait although it fits",
    "expiration(self, msg, jobid, expiration)": "the request is not answered",
}
for override, said in WITHOUT_SUPER.items():
    name = override.partition("(")[0]
    said = rf"Mine.{name}\(\) does not call super\(\).{name}\(\): {said}"
    MISTAKES[f"{name}() without super()"] = defines(f"def {override}: self.seen = 1"), said


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(reactor, "MAX_TURNS_AT_ONE_TIME", 1000)


def fake(path):
    """Return the report of a test of the module in a file."""
    instance = FakeInstance(nodes=2)
    raised = ""
    try:
        instance.load(path)
        for _ in range(3):
            instance.submit(nodes=1, duration=60)
        instance.advance(600)
    except (Exception, SystemExit, EndlessLoop) as exc:
        raised = f"{type(exc).__name__}: {exc}"
    # Warnings fail no test.
    return "\n".join([raised, *(text for level, text in instance.log if level <= 4)])


def simulated(path):
    """The output of a simulation, and the reason of its failure."""
    trace = path.with_name("jobs.csv")
    trace.write_text("id,submit,run,limit,nodes\n1,0,60,60,1\n2,0,60,60,1\n3,0,60,60,1\n")
    (mine,) = policy.parse([str(path)])
    handler = signal.getsignal(signal.SIGINT)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            _, summary = simulate(
                Trace(str(trace), nodes=2).workload(), mine, Settings(), catch=True
            )
    finally:
        signal.signal(signal.SIGINT, handler)
    assert summary["failed"]
    log = [entry["text"] for entry in summary["log"]]
    return "\n".join([summary["failed"], printed.getvalue(), *log])


def embedded(path):
    """Return the log and the output of an instance."""
    attrs = AttrTable()
    attrs.define("log-stderr-level", "-1")
    lines = []
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        instance = Instance(clock=VirtualClock(), R=make_R(2), attrs=attrs)
        instance.ctx.ring.follow(lambda entry: entry.level <= 4 and lines.append(entry.text))
        instance.start()
        done = []
        try:
            with contextlib.suppress(OSError):  # it is logged
                instance.load_module(path)
            for _ in range(3):
                spec = jobspec(nodes=1, duration=60, run_duration=60, environment={})
                request = {"jobspec": json.dumps(spec), "urgency": 16, "flags": 0}
                instance.handle.rpc("job-ingest.submit", request).get()
            instance.kernel.call_later(600, lambda: done.append(1))
            instance.kernel.run(until=lambda: bool(done))
        except RuntimeError as exc:
            lines.append(str(exc))  # as `flux start` prints it
        else:
            instance.stop()
    return "\n".join([*(f"job-manager: {line}" for line in lines), printed.getvalue()])


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # Python says it, too
@pytest.mark.parametrize("host", [fake, simulated, embedded])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_it_is_said(mistake, host, tmp_path):
    text, said = MISTAKES[mistake]
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert re.search(said, host(path))


@pytest.mark.parametrize("host", [fake, simulated])
def test_an_endless_loop_is_named_with_its_line(host, tmp_path, monkeypatch):
    """In an instance: t/python/broker/test_start.py."""
    monkeypatch.setattr(watchdog, "LONGEST_TURN", 0.1)
    path = tmp_path / "mine.py"
    # A watchdog that is off fails the test, and does not hold it up.
    until = "until = time.process_time() + 1"
    path.write_text(schedule(until, "while time.process_time() < until: pass"))
    assert re.search(r"has not come back to its reactor .*mine.py:\d+ \(schedule\)", host(path))
