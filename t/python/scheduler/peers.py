"""A scheduler module among scripted peers: resource, job manager, job-info, and a real KVS.

Everything the scheduler sends is recorded.  Time is virtual and stands still until a test moves it.

    rig = Rig(R(4, 4))
    sched = rig.load(MyScheduler, "queue-depth=8")
    rig.alloc(1, jobspec(1))
    rig.settle()
    assert rig.success(1)["R"] ...
"""

import errno
import heapq
import json
import types
from pathlib import Path

from _flux.module import module_handle
from flux.idset import IDset
from flux.resource import InfeasibleRequest, InsufficientResources
from flux.scheduler import Scheduler, telling
from flux_embedded.kernel import Kernel, Task, VirtualClock, message
from flux_embedded.kernel.handle import Flux
from flux_embedded.kernel.message import Message
from flux_embedded.kernel.service import Service, request
from flux_embedded.services.kvs.service import Kvs

MODULES = Path(__file__).resolve().parents[3] / "src" / "modules"
START = 1_700_000_000.0

# What users are told is told at once here; the tests of when it is set this back.
telling.MATURE = 0.0


def R(nodes, cores, gpus=0, expiration=0.0, properties=None, **extra):
    """An R of `nodes` equal nodes n0, n1, ..."""
    children = {"core": ids(cores)}
    if gpus:
        children["gpu"] = ids(gpus)
    execution = {
        "R_lite": [{"rank": ids(nodes), "children": children}],
        "starttime": 0.0,
        "expiration": expiration,
        "nodelist": [f"n[0-{nodes - 1}]" if nodes > 1 else "n0"],
    }
    if properties:
        execution["properties"] = properties
    return dict({"version": 1, "execution": execution}, **extra)


def ids(count):
    return "0" if count == 1 else f"0-{count - 1}"


def jobspec(
    slots=1, cores=1, gpus=0, nodes=None, duration=0, exclusive=False, constraints=None, **system
):
    """A jobspec as `flux submit` makes it."""
    within = [{"type": "core", "count": cores}]
    if gpus:
        within.append({"type": "gpu", "count": gpus})
    resources = [{"type": "slot", "count": slots, "with": within, "label": "task"}]
    if nodes is not None:
        node = {"type": "node", "count": nodes, "with": resources}
        if exclusive:
            node["exclusive"] = True
        resources = [node]
    system = dict({"duration": duration, "cwd": "/home/user"}, **system)
    if constraints is not None:
        system["constraints"] = constraints
    return {
        "resources": resources,
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": system},
        "version": 1,
    }


class Guide(Scheduler):
    """The shortest policy there is."""

    def schedule(self):
        while self._queue:
            job = self._queue[0]
            try:
                alloc = self.resources.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                break
            except InfeasibleRequest as exc:
                job.request.deny(str(exc))
            else:
                job.request.success(alloc)
            heapq.heappop(self._queue)


class Context:
    def __init__(self, kernel):
        self.kernel = kernel
        self.config = {}


class Names(Service):
    """service.add / service.remove."""

    name = "service"
    taken = ()

    @request("add")
    def add(self, msg):
        name = msg.body["service"]
        if name in self.taken:
            raise OSError(errno.EEXIST, f"could not register service {name}: File exists")
        self.kernel.add_service(name, msg.sender)
        self.respond(msg)


class Log(Service):
    name = "log"

    def __init__(self, ctx):
        super().__init__(ctx)
        self.lines = []

    @request("append")
    def append(self, msg):
        self.lines.append((msg.body["level"], msg.body["text"]))


class ResourcePeer(Service):
    name = "resource"

    def __init__(self, ctx, R, up):
        super().__init__(ctx)
        self.first = {"resources": R, "up": up}
        self.stream = None
        self.error = None
        #: whether the resources are not known yet
        self.discovering = False

    @request("acquire", streaming=True)
    def acquire(self, msg):
        if self.error:
            raise OSError(*self.error)
        self.stream = msg
        if not self.discovering:
            self.respond(msg, self.first)

    def discovered(self):
        self.discovering = False
        self.respond(self.stream, self.first)

    def update(self, **keys):
        self.respond(self.stream, {key.replace("_", "-"): value for key, value in keys.items()})

    def fail(self, errnum, text=None):
        self.respond_error(self.stream, errnum, text)


class JobManagerPeer(Service):
    name = "job-manager"

    def __init__(self, ctx, rig):
        super().__init__(ctx)
        self.rig = rig
        self.running = []
        self.hello_request = None
        self.hello_error = None
        self.ready_request = None
        self.raised = []
        #: None: there is no alloc-query; else a function giving the answer, and what is sent after it
        self.alloc_query = None

    @request("alloc-query")
    def alloc_query_(self, msg):
        if self.alloc_query is None:
            raise OSError(errno.ENOSYS, "No service matching job-manager.alloc-query is registered")
        answer, requests = self.alloc_query()
        self.respond(msg, answer)
        for jobid in requests:
            self.rig.alloc(jobid)

    @request("sched-hello", streaming=True)
    def sched_hello(self, msg):
        self.hello_request = msg.body
        if self.hello_error:
            raise OSError(*self.hello_error)
        for job in self.running:
            self.respond(msg, job)
        self.respond_error(msg, errno.ENODATA)

    @request("sched-ready")
    def sched_ready(self, msg):
        self.ready_request = msg.body
        self.respond(msg, {"count": 0})

    @request("raise")
    def raise_(self, msg):
        self.raised.append(msg.body)
        self.respond(msg)


class JobInfoPeer(Service):
    name = "job-info"

    def __init__(self, ctx):
        super().__init__(ctx)
        self.R = {}
        self.jobspecs = {}
        self.waiting = []
        self.most_waiting = 0

    @request("lookup")
    def lookup(self, msg):
        # Answers come late, so that a client that waits for each before asking for the next shows.
        self.waiting.append(msg)
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        self.timer(0.0, self.answer)

    def answer(self):
        waiting, self.waiting = self.waiting, []
        for msg in waiting:
            if msg.body["keys"] == ["jobspec"]:
                spec = self.jobspecs.get(msg.body["id"])
                if spec is None:
                    self.respond_error(msg, errno.ENOENT, "invalid key")
                else:
                    self.respond(msg, {"id": msg.body["id"], "jobspec": spec})
                continue
            assert msg.body["flags"] == 3 and msg.body["keys"] == ["R"]
            found = self.R.get(msg.body["id"])
            if found is None:
                self.respond_error(msg, errno.ENOENT, "invalid key")
            else:
                self.respond(msg, {"id": msg.body["id"], "R": found})


class ScriptedKvs(Kvs):
    """The instance's KVS; commits fail, or wait, as told."""

    def __init__(self, ctx):
        super().__init__(ctx)
        self.commits = []
        self.failing = False
        self.held = None

    @request("commit")
    def commit(self, msg):
        self.commits.append(msg.body)
        if self.failing:
            raise OSError(errno.EIO, "disk on fire")
        if self.held is not None:
            self.held.append(msg)
        else:
            super().commit(msg)

    def hold(self):
        self.held = []

    def release(self):
        held, self.held = self.held, None
        for msg in held:
            super().commit(msg)


class ModuleTask(Task):
    """What a broker makes of a module, as far as these tests need it."""

    def __init__(self, kernel, name):
        super().__init__(kernel, name, self.main)
        self.entry = None
        self.running = False
        self.failure = None
        self.ended = False
        self.on_exit = self.exited
        kernel.add_service(name, self)

    def main(self):
        Flux(self)
        self.entry(module_handle(self.handle))

    def set_running(self):
        self.running = True

    def _dispatch_request(self, msg):
        if msg.topic == self.name + ".shutdown":
            self.reactor_stop(0)
        else:
            super()._dispatch_request(msg)

    def exited(self, task, failure):
        self.failure = failure
        self.ended = True
        self.close()


class Rig:
    """A kernel with the peers of a scheduler.

    Args:
        R (dict): the inventory
        up (str): ranks up at first; default: all
        job_info (bool): whether there is a job-info service
    """

    def __init__(self, R, up=None, job_info=True, clock=None):
        self.kernel = kernel = Kernel(clock or VirtualClock(START))
        ctx = Context(kernel)
        if up is None:
            every = IDset()
            for entry in R["execution"]["R_lite"]:
                every.add(entry["rank"])
            up = str(every)
        self.names = Names(ctx)
        self.log = Log(ctx)
        self.resource = ResourcePeer(ctx, R, up)
        self.manager = JobManagerPeer(ctx, self)
        self.info = JobInfoPeer(ctx)
        self.kvs = ScriptedKvs(ctx)
        services = [self.names, self.log, self.resource, self.manager, self.kvs]
        if job_info:
            services.append(self.info)
        for service in services:
            service.start()
        #: every message the job manager or a client got from the scheduler: (topic, errnum, payload)
        self.received = []
        self.client = Recorder(kernel, self.received)
        self.handle = module_handle(Flux(Task(kernel, "test")))
        self.task = None
        self.sched = None
        self.known_R = {}

    # -- the module ----------------------------------------------------------------------------

    def load(self, cls, *args, name="sched-test", wait=True):
        """Start a scheduler of class `cls`; returns it once it waits for messages."""

        def main(h):
            self.sched = cls(h, *args)
            self.sched.run()

        return self._run(main, name, wait)

    def load_file(self, name, *args, wait=True):
        """Start one of the modules in src/modules, or a file by its path, from its ``mod_main``."""
        path = Path(name) if "/" in str(name) else MODULES / name / (name + ".py")
        module = types.ModuleType(path.stem)
        exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
        rig = self

        def main(h):
            from flux.scheduler import base

            run = base.Scheduler.run

            def noting_run(sched):
                rig.sched = sched
                base.Scheduler.run = run
                return run(sched)

            base.Scheduler.run = noting_run
            try:
                module.mod_main(h, *args)
            finally:
                base.Scheduler.run = run

        self.module = module
        return self._run(main, path.stem, wait)

    def _run(self, main, name, wait):
        self.sched = None
        self.task = ModuleTask(self.kernel, name)
        self.task.entry = main
        self.task.start()
        if wait:
            self.settle()
            if self.task.failure is not None:
                raise self.task.failure
        return self.sched

    def unload(self):
        self.send(self.task.name + ".shutdown", None, flags=message.FLAG_NORESPONSE)
        self.settle()
        assert self.task.ended

    # -- time and turns --------------------------------------------------------------------------

    def settle(self):
        """Let everything happen that needs no time to pass."""
        self.kernel.run_until_idle()

    def turn(self):
        """Let one turn of the loop pass."""
        turns = self.kernel.turns
        self.kernel.run(until=lambda: self.kernel.turns > turns)

    def wait(self, seconds):
        """Let `seconds` pass."""
        done = []
        self.kernel.call_later(seconds, lambda: done.append(True))
        self.kernel.run(until=lambda: bool(done))
        self.settle()

    @property
    def now(self):
        return self.kernel.time

    # -- messages to the scheduler ----------------------------------------------------------------

    def send(self, topic, payload, tag=0, flags=0):
        self.send_text(topic, None if payload is None else json.dumps(payload), tag, flags)

    def send_text(self, topic, text, tag=0, flags=0):
        msg = Message(message.REQUEST, topic, text)
        msg.userid, msg.rolemask = self.client.userid, self.client.rolemask
        msg.matchtag = tag
        msg.flags = flags
        msg.sender = self.client
        self.kernel.request(msg)

    def alloc(self, jobid, spec=None, priority=16, **keys):
        payload = {
            "id": jobid,
            "priority": priority,
            "userid": 0,
            "t_submit": self.now,
            "jobspec": jobspec() if spec is None else spec,
        }
        payload.update(keys)
        self.send("sched.alloc", payload)

    def cancel(self, jobid):
        self.send("sched.cancel", {"id": jobid}, flags=message.FLAG_NORESPONSE)

    def prioritize(self, *jobs):
        self.send(
            "sched.prioritize", {"jobs": [list(job) for job in jobs]}, flags=message.FLAG_NORESPONSE
        )

    def free(self, jobid, R=None, final=True):
        """Return a job's resources (default: what it was given)."""
        if R is None:
            R = self.success(jobid)["R"]
        self.send("sched.free", {"id": jobid, "R": R, "final": final})

    def expire(self, jobid, expiration):
        self.send("sched.expiration", {"id": jobid, "expiration": expiration}, tag=77)

    def ask(self, topic, payload=None):
        """A request with one response: returns (errnum, payload or error text)."""
        before = len(self.received)
        self.send(topic, payload, tag=99)
        self.settle()
        for got, errnum, answer in self.received[before:]:
            if got == topic:
                return errnum, answer
        raise AssertionError(f"no answer to {topic}")

    def kvs_value(self, key):
        """The text stored under a key."""
        return self.handle.rpc("kvs.lookup", {"key": key}).get()["value"]

    # -- what the scheduler answered --------------------------------------------------------------

    def answers(self, jobid, *types):
        """The payloads of all responses to sched.alloc for this job (of these types)."""
        return [
            payload
            for topic, errnum, payload in self.received
            if topic == "sched.alloc"
            and payload["id"] == jobid
            and (not types or payload["type"] in types)
        ]

    def success(self, jobid):
        found = self.answers(jobid, 0)
        assert len(found) == 1, f"job {jobid}: {len(found)} successes"
        return found[0]

    def started(self):
        """Ids of the jobs that got resources, in order."""
        return [p["id"] for t, e, p in self.received if t == "sched.alloc" and p["type"] == 0]

    def denied(self, jobid):
        found = self.answers(jobid, 2)
        assert len(found) == 1
        return found[0].get("note")

    def annotations(self, jobid):
        """What `flux jobs` would show for a job: all its annotations merged (RFC 27)."""
        merged = {}
        for payload in self.answers(jobid):
            if payload["type"] == 2:
                merged = {}
            merge(merged, payload.get("annotations", {}))
        return merged

    def logged(self, level=None):
        return [text for number, text in self.log.lines if level is None or number == level]


class Recorder(Task):
    """Receives responses, and makes them payloads."""

    def __init__(self, kernel, received):
        super().__init__(kernel, "client")
        self.log = received
        self.tell = None

    def receive(self, msg):
        payload = (
            msg._text if msg.errnum else (json.loads(msg.payload_str) if msg.payload_str else None)
        )
        self.log.append((msg.topic, msg.errnum, payload))
        if self.tell is not None and msg.topic == "sched.alloc" and not msg.errnum:
            self.tell(payload)


def merge(into, new):
    """Merge annotations as the job manager does (RFC 27)."""
    for key, value in new.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
            if not into[key]:
                del into[key]
        elif isinstance(value, dict):
            fresh = {}
            merge(fresh, value)
            if fresh:
                into[key] = fresh
        else:
            into[key] = value


class Simulation(Rig):
    """A rig whose jobs end by themselves: on time, or after the seconds that a test says."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.runtime = {}
        self.begun = {}
        self.ended = {}
        #: what each job was promised first
        self.first_estimate = {}
        self.kinds = {}
        self.client.tell = self.told

    def submit(self, jobid, spec, runtime=None, **keys):
        """A request for a job that runs for `runtime` seconds; default: its duration."""
        self.runtime[jobid] = (
            runtime if runtime is not None else spec["attributes"]["system"]["duration"]
        )
        self.alloc(jobid, spec, **keys)

    def told(self, payload):
        jobid = payload["id"]
        if payload["type"] == 0:
            self.begun[jobid] = self.now
            R = payload["R"]
            if self.runtime.get(jobid):
                self.kernel.call_later(self.runtime[jobid], lambda: self.end(jobid, R))
        elif payload["type"] == 1:
            sched = payload["annotations"].get("sched", {})
            estimate = sched.get("t_estimate", 0)
            kind = self.kinds[jobid] = sched.get("t_estimate_kind", self.kinds.get(jobid))
            if estimate is None or kind == "planned":
                self.first_estimate.pop(jobid, None)
            elif estimate:
                self.first_estimate.setdefault(jobid, estimate)

    def end(self, jobid, R):
        self.ended[jobid] = self.now
        self.free(jobid, R)
