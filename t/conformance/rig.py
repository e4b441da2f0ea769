# SPDX-License-Identifier: LGPL-3.0-or-later
"""The peers of a scheduler, played by a client of a broker that has no others: job manager, resource service, job-info.

The scheduler under test is a broker module in any language, loaded as on a machine. It meets the services by their
names, and the key-value store, which is the broker's own. Only messages to and from it are checked; its
internals are not accessed.

    with Rig(handle, "sched-simple") as rig:
        rig.load()
        rig.alloc(1, nodes=2)
        rig.success(1)
"""

import errno
import json
import os
import subprocess
import time

from flux.constants import FLUX_MSGTYPE_REQUEST, FLUX_RPC_NORESPONSE, FLUX_RPC_STREAMING
from flux.idset import IDset
from flux.job import JobID
from flux.kvs import KVSTxn
from flux.kvs import get as kvs_get

#: Seconds for a scheduler to react. Long: only a failure takes all of them.
PATIENCE = float(os.environ.get("CONFORMANCE_PATIENCE", 10))
#: Seconds of silence after which it is taken that nothing more comes.
SILENCE = float(os.environ.get("CONFORMANCE_SILENCE", 0.25))
SUCCESS, ANNOTATE, DENY, CANCEL = range(4)
FINAL = (SUCCESS, DENY, CANCEL)
#: Those that the rig plays.
SERVICES = ("job-manager", "resource", "job-info")
#: The command of the instance: ``flux python`` of a real Flux puts directories with others of that name first.
FLUX = os.environ.get("CONFORMANCE_FLUX", "flux")


class Failure(Exception):
    """A requirement is violated; the text has the message that shows it."""


class NotOffered(Exception):
    """The scheduler does not offer an optional feature."""


def check(condition, text, *messages):
    """Fail if `condition` does not hold."""
    if not condition:
        raise Failure("; ".join([text, *(json.dumps(one)[:300] for one in messages)]))


def ids(ranks):
    return str(IDset(",".join(map(str, sorted(ranks)))) if ranks else "")


def make_R(ranks, cores="0-3", gpus=None, start=0.0, end=0.0, properties=None):
    """R (RFC 20) with the same on each of `ranks` (a list); the hosts are n0, n1, ..."""
    children = {"core": cores, **({"gpu": gpus} if gpus else {})}
    execution = {
        "R_lite": [{"rank": ids(ranks), "children": children}],
        "nodelist": [f"n{rank}" for rank in sorted(ranks)],
        "starttime": start,
        "expiration": end,
    }
    if properties:
        execution["properties"] = properties
    return {"version": 1, "execution": execution}


def held(R, kind="core"):
    """Return the units in an R as a set of (rank, id)."""
    found = set()
    for entry in R["execution"]["R_lite"]:
        units = IDset(entry["children"].get(kind, ""))
        found |= {(rank, one) for rank in IDset(entry["rank"]) for one in units}
    return found


def part_of(R, ranks):
    """The part of an R that is on these ranks."""
    entries = []
    for entry in R["execution"]["R_lite"]:
        there = [rank for rank in IDset(entry["rank"]) if rank in ranks]
        if there:
            entries.append({"rank": ids(there), "children": entry["children"]})
    execution = dict(R["execution"], R_lite=entries, nodelist=[f"n{one}" for one in sorted(ranks)])
    execution.pop("properties", None)
    return {"version": 1, "execution": execution}


def jobspec(nodes=None, slots=1, cores=1, gpus=0, duration=600.0, constraint=None):
    """Return a jobspec of version 1 (RFC 25) with a number of slots, per node if `nodes` is given."""
    inside = [{"type": "core", "count": cores}]
    if gpus:
        inside.append({"type": "gpu", "count": gpus})
    shape = {"type": "slot", "count": slots, "label": "task", "with": inside}
    if nodes:
        shape = {"type": "node", "count": nodes, "with": [shape]}
    system = {"duration": duration}
    if constraint:
        system["constraints"] = constraint
    return {
        "version": 1,
        "resources": [shape],
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": system},
    }


class Rig:
    """The peers, and the messages between them and the scheduler.

    Args:
        handle (flux.Flux): a broker without job-manager, resource and job-info
        module (str): name or file of the module
        args (list of str): its arguments
        before (list of str): modules that it needs, in the order in which they are loaded

    Attributes:
        R (dict): the inventory; a case may set another before `load`
        up (str): ranks that are up at first
        running (list): entries of the answer to hello, with "R" beside the keys of RFC 27
        topics (list): requests of the scheduler, in order
        answers (dict): job -> payloads of the answers to its request
        errors (list): (topic, job or None, errnum, text) of answers that were errors
        raised (list): payloads of exceptions that the scheduler has raised on jobs
        refuse (dict): topic -> errnum with which a request of the scheduler is answered
    """

    def __init__(self, handle, module, args=(), before=()):
        self.h = handle
        self.module = module
        self.name = os.path.splitext(os.path.basename(module))[0]
        self.args = list(args)
        self.before = list(before)
        self.R = make_R(range(4), gpus="0")
        self.up = "0-3"
        self.running = []
        self.topics = []
        self.hello = None
        self.ready = None
        self.acquire = None
        self.answers = {}
        self.errors = []
        self.replies = []
        self.raised = []
        self.refuse = {}
        self.loaded = False
        self._futures = []
        self._last = 0.0
        self._watchers = []

    def __enter__(self):
        for service in SERVICES:
            self.h.service_register(service).get()
            watcher = self.h.msg_watcher_create(self._serve, FLUX_MSGTYPE_REQUEST, f"{service}.*")
            watcher.start()
            self._watchers.append(watcher)
        return self

    def __exit__(self, *exc):
        if self.loaded:
            self.unload()
        for watcher in self._watchers:
            watcher.stop()
        for service in SERVICES:
            self.h.rpc("service.remove", {"service": service}).get()

    # -- the peers ---------------------------------------------------------------------------------

    def _serve(self, handle, watcher, msg, args):
        self._last = time.monotonic()
        topic = msg.topic
        payload = json.loads(msg.payload_str) if msg.payload_str else {}
        if topic.endswith((".disconnect", ".cancel", "-cancel")):
            return
        self.topics.append(topic)
        method = "_" + topic.replace(".", "_").replace("-", "_")
        try:
            if topic in self.refuse:
                raise OSError(self.refuse[topic], os.strerror(self.refuse[topic]))
            if not hasattr(self, method):
                raise OSError(errno.ENOSYS, f"{topic}: not played by the conformance kit")
            answer = getattr(self, method)(msg, payload)
        except OSError as exc:
            self.h.respond_error(msg, exc.errno, exc.strerror)
            return
        if answer is not None:
            self.h.respond(msg, answer)

    def _resource_acquire(self, msg, payload):
        self.acquire = msg
        return {"resources": self.R, "up": self.up}

    def _job_manager_sched_hello(self, msg, payload):
        self.hello = payload
        for job in self.running:
            entry = {key: value for key, value in job.items() if key != "R"}
            if not payload.get("partial-ok") and "free" in entry:
                continue
            self.h.respond(msg, entry)
        raise OSError(errno.ENODATA, "end of jobs")

    def _job_manager_sched_ready(self, msg, payload):
        self.ready = payload
        return {"count": 0}

    def _job_manager_raise(self, msg, payload):
        self.raised.append(payload)
        return {}

    def _job_info_lookup(self, msg, payload):
        for job in self.running:
            values = {"R": job["R"], "jobspec": jobspec()}
            if job["id"] == payload["id"] and values.keys() >= set(payload["keys"]):
                text = (lambda one: one) if payload.get("flags", 0) & 1 else json.dumps
                return {"id": job["id"], **{key: text(values[key]) for key in payload["keys"]}}
        raise OSError(errno.ENOENT, "no such job or key")

    # -- the module --------------------------------------------------------------------------------

    def load(self):
        """Load the module, up to its sched-ready; that it does not get there is a Failure."""
        self.store_R_of_running()
        process = self._load()
        # The command may come back before the module has got so far, or only afterwards.
        self.until(lambda: process.poll() is not None or self.ready is not None)
        self.until(lambda: self.ready is not None)
        output = self._end(process)
        self.loaded = self.is_there()
        text = f"the module does not get ready: {output.strip()[-200:]}; it has asked for"
        check(self.ready is not None and self.loaded, text, self.topics)
        self.settle()

    def load_in_vain(self):
        """Load a module whose start is refused; returns when it has ended, which it has to (Failure)."""
        self._end(self._load())
        check(self.until(lambda: not self.is_there()), "the module goes on, after", self.topics)
        self.until(self.is_gone)

    def _load(self):
        for module in self.before:
            self._end(self._start("load", module))
        return self._start("load", self.module, *self.args)

    def _start(self, *words):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen([FLUX, "module", *words], stdin=subprocess.DEVNULL, **pipes)

    def _end(self, process):
        if not self.until(lambda: process.poll() is not None):
            process.kill()
        return process.communicate()[0]

    def unload(self):
        for module in [self.name, *reversed(self.before)]:
            self._end(self._start("remove", module))
        self.loaded = False

    def is_gone(self):
        """Whether a module that has ended by itself has left the list, so that it can be loaded again."""
        listed = subprocess.run([FLUX, "module", "list"], stdout=subprocess.PIPE, text=True)
        return self.name not in listed.stdout.split()

    def is_there(self):
        """Whether the service sched is held."""
        try:
            self.h.service_register("sched").get()
        except OSError as exc:
            if exc.errno != errno.EEXIST:
                raise
            return True
        self.h.rpc("service.remove", {"service": "sched"}).get()
        return False

    def store_R_of_running(self):
        """R and jobspec of the running jobs, where a scheduler may read them instead of asking job-info."""
        for job in self.running:
            txn = KVSTxn(self.h, JobID(job["id"]).kvs)
            txn.put("R", json.dumps(job["R"]), raw=True)
            txn.put("eventlog", "", raw=True)
            txn.put("jobspec", json.dumps(jobspec()), raw=True)
            txn.commit()

    # -- time --------------------------------------------------------------------------------------

    def until(self, condition, seconds=None):
        """Handle messages until `condition()`; returns whether it came to that in time."""
        deadline = time.monotonic() + (PATIENCE if seconds is None else seconds)
        if condition():
            return True

        def look(handle, watcher, revents, args):
            if condition() or time.monotonic() > deadline:
                self.h.reactor_stop()

        timer = self.h.timer_watcher_create(0.005, look, repeat=0.005)
        timer.start()
        try:
            self.h.reactor_run()
        finally:
            timer.stop()
        return condition()

    def settle(self):
        """Handle messages until no more seem to come: the silence counts from when the module has read all requests."""
        read = []
        ping = self.h.rpc(f"{self.name}.ping", {"seq": 0, "pad": ""})
        ping.then(read.append)
        self.until(lambda: read)
        self._last = time.monotonic()
        self.until(lambda: time.monotonic() - self._last > SILENCE, PATIENCE + SILENCE)

    # -- messages to the scheduler -----------------------------------------------------------------

    def _ask(self, topic, payload, then, flags=0):
        future = self.h.rpc(topic, payload, flags=flags)

        def answered(future):
            self._last = time.monotonic()
            try:
                then(future.get() if topic != "sched.alloc" else json.loads(future.get_str()))
            except OSError as exc:
                self.errors.append((topic, payload.get("id"), exc.errno, exc.strerror))
                return
            if flags & FLUX_RPC_STREAMING:
                future.reset()

        future.then(answered)
        self._futures.append(future)

    def alloc(self, jobid, spec=None, priority=16, **shape):
        """Request resources; the answers are in `answers`."""
        payload = {
            "id": jobid,
            "priority": priority,
            "userid": os.getuid(),
            "t_submit": time.time(),
            "jobspec": jobspec(**shape) if spec is None else spec,
        }
        got = self.answers.setdefault(jobid, [])
        self._ask("sched.alloc", payload, got.append, FLUX_RPC_STREAMING)

    def free(self, jobid, R, final=True):
        def answered(payload):
            self.replies.append(("sched.free", payload))

        payload = {"id": jobid, "R": R}
        # RFC 27: final is left out where it is false.
        if final:
            payload["final"] = True
        self._ask("sched.free", payload, answered)

    def cancel(self, jobid):
        self.h.rpc("sched.cancel", {"id": jobid}, flags=FLUX_RPC_NORESPONSE)

    def prioritize(self, *jobs):
        payload = {"jobs": [list(job) for job in jobs]}
        self.h.rpc("sched.prioritize", payload, flags=FLUX_RPC_NORESPONSE)

    def ask(self, topic, payload):
        """A request that must be answered (Failure), once: returns (errnum, text or payload)."""
        got = []
        errors = len(self.errors)
        self._ask(topic, payload, got.append)
        self.until(lambda: got or len(self.errors) > errors)
        if got:
            return 0, got[0]
        check(len(self.errors) > errors, f"no answer to {topic}", payload)
        return self.errors.pop()[2:]

    def update(self, **delta):
        """A further answer to resource.acquire."""
        self.h.respond(self.acquire, {key.replace("_", "-"): value for key, value in delta.items()})

    # -- its answers -------------------------------------------------------------------------------

    def finals(self, jobid):
        return [one for one in self.answers.get(jobid, ()) if one.get("type") in FINAL]

    def final(self, jobid, kind, why):
        """The one final answer to a job's request, which must come, be of this kind and be the only one (Failure)."""

        def refused():
            # Of this job alone: a broker answers requests left open by a module, later or sooner.
            return [one for one in self.errors if one[:2] == ("sched.alloc", jobid)]

        self.until(lambda: self.finals(jobid) or refused())
        got, wrong = self.finals(jobid), refused()
        check(not wrong, f"job {jobid}: an error answers sched.alloc (RFC 27 has none)", *wrong)
        check(got, f"job {jobid}: no final answer; {why}", *self.answers.get(jobid, ())[-1:])
        check(len(got) == 1, f"job {jobid}: {len(got)} final answers", *got)
        check(got[0]["type"] == kind, f"job {jobid}: not answered by type {kind}; {why}", got[0])
        return got[0]

    def success(self, jobid, why="it fits"):
        """The R that a job is given."""
        answer = self.final(jobid, SUCCESS, why)
        try:
            stored = kvs_get(self.h, f"{JobID(jobid).kvs}.R")
        except OSError as exc:
            raise Failure(
                f"job {jobid}: type 0 without R at {JobID(jobid).kvs}.R in the KVS ({exc.strerror}); "
                + json.dumps(answer)[:300]
            ) from None
        return stored

    def waits(self, jobid, why):
        """Check that a job is not answered finally."""
        self.settle()
        check(not self.finals(jobid), f"job {jobid} does not wait; {why}", *self.finals(jobid))
