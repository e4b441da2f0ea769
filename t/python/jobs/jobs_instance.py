# SPDX-License-Identifier: LGPL-3.0-or-later
"""An instance with a scripted scheduler, for tests of the job services at the message level."""

import errno
import json

from in_process import InProcess

from flux.scheduler.testing import jobspec, make_R
from flux_engine.formats import eventlog, jobid
from flux_engine.kernel.service import Service, request

SERVICES = ("kvs", "job-manager", "job-ingest", "job-info", "job-list", "job-exec")


#: A payload of job-list.list: all jobs with all attributes.
ALL = {"max_entries": 0, "attrs": ["all"]}


class Scheduler(Service):
    """A scheduler that records its requests and answers as the test specifies.

    Attributes:
        seen (list): (method, payload) of all requests
        auto: None; True: give each job a core at once; or ``auto(body)`` returns its R
    """

    name = "sched"

    def __init__(self, ctx, mode="unlimited", limit=None, partial_ok=True, auto=None):
        super().__init__(ctx)
        self.methods["feasibility.check"] = self.methods["sched.check"]
        self.kernel.add_service("feasibility", self)
        self.seen = []
        self.auto = auto
        self.requests = {}
        self.hello = []
        self.mode = {"mode": mode} if limit is None else {"mode": mode, "limit": limit}
        self.partial_ok = partial_ok
        self.count = None
        self.infeasible = None
        self.expiration_error = None

    def begin(self):
        future = self.rpc(
            "job-manager.sched-hello", {"partial-ok": self.partial_ok}, streaming=True
        )
        while True:
            try:
                self.hello.append(future.get())
            except OSError as exc:
                if exc.errno != errno.ENODATA:
                    raise
                break
            future.reset()
        self.count = self.rpc("job-manager.sched-ready", self.mode).get()["count"]

    @request("alloc", later=True)
    def _alloc(self, msg):
        self.seen.append(("alloc", msg.payload))
        self.requests[msg.body["id"]] = msg
        if self.auto is not None:
            R = None if self.auto is True else self.auto(msg.body)
            self.allocate(msg.body["id"], R)

    @request("cancel", later=True)
    def _cancel(self, msg):
        self.seen.append(("cancel", msg.payload))
        if msg.body["id"] in self.requests:
            self.answer(msg.body["id"], type=3)

    @request("prioritize", later=True)
    def _prioritize(self, msg):
        self.seen.append(("prioritize", msg.payload))

    @request("expiration")
    def _expiration(self, msg):
        self.seen.append(("expiration", msg.payload))
        if self.expiration_error:
            raise self.expiration_error

    @request("free", later=True)
    def _free(self, msg):
        self.seen.append(("free", msg.payload))

    @request("check")
    def _check(self, msg):
        self.seen.append(("check", msg.payload))
        if self.infeasible:
            raise OSError(errno.EOVERFLOW, self.infeasible)

    def answer(self, id, **body):
        msg = self.requests[id] if body["type"] == 1 else self.requests.pop(id)
        self.respond(msg, {"id": id, **body})

    def allocate(self, id, R=None, annotations=None):
        """SUCCESS, with R committed first."""
        R = R or make_R(starttime=self.kernel.time)
        self.rpc("kvs.commit", {"ops": [["put", jobid.kvs_dir(id) + ".R", json.dumps(R)]]})
        body = {"type": 0, "R": R}
        if annotations:
            body["annotations"] = annotations
        self.answer(id, **body)

    def methods_seen(self):
        return [method for method, _ in self.seen]

    def of(self, method):
        return [body for name, body in self.seen if name == method]


class JobsInstance(InProcess):
    """An instance without resource service."""

    def __init__(self, services=SERVICES, **options):
        super().__init__(services=services, **options)
        self.sched = None

    def advance(self, seconds):
        """Let `seconds` of virtual time pass."""
        done = []
        self.kernel.call_later(seconds, lambda: done.append(1))
        self.kernel.run(until=lambda: bool(done))
        self.run()

    def load_sched(self, **kwargs):
        self.sched = Scheduler(self.ctx, **kwargs)
        self.sched.start()
        self.run()
        return self.sched

    def unload_sched(self):
        self.sched.close()
        self.run()

    def rpc(self, topic, payload=None):
        """The result of a request that is answered without time passing."""
        future = self.handle.rpc(topic, payload)
        self.run()
        assert future.is_ready(), f"{topic}: no answer"
        return future.get()

    def submit(self, spec=None, urgency=16, flags=0, **kwargs):
        """Submit a job; returns its id."""
        body = {"jobspec": spec or jobspec(**kwargs), "urgency": urgency, "flags": flags}
        return self.rpc("job-ingest.submit", body)["id"]

    def update(self, id, **system):
        """Update system attributes of a job."""
        updates = {f"attributes.system.{key}": value for key, value in system.items()}
        return self.rpc("job-manager.update", {"id": id, "updates": updates})

    def urgency(self, id, urgency):
        return self.rpc("job-manager.urgency", {"id": id, "urgency": urgency})

    def jobtap(self, **request):
        """Load or remove jobtap plugins, if asked; returns the names of all."""
        if request:
            self.rpc("job-manager.jobtap", request)
        return self.rpc("job-manager.jobtap", {"query_only": True})["plugins"]

    def listed(self, id):
        """All attributes of a job, as the list of jobs has them."""
        return self.rpc("job-list.list-id", {"id": id, "attrs": ["all"]})["job"]

    def cancel(self, id, **kwargs):
        self.rpc("job-manager.raise", {"id": id, "type": "cancel", "severity": 0, **kwargs})

    def eventlog(self, id, path="eventlog"):
        """The events of a job, all of which are committed."""
        self.run()
        return eventlog.parse(
            self.rpc("job-info.lookup", {"id": id, "keys": [path], "flags": 0})[path]
        )

    def events(self, id):
        """Names of a job's events."""
        return [event["name"] for event in self.eventlog(id)]

    def logged(self):
        """The lines of the log about jobtap plugins."""
        return [entry.text for entry in self.ctx.ring.entries() if "jobtap" in entry.text]

    @property
    def jm(self):
        return self.service("job-manager")

    def state(self, id):
        return self.jm.jobs.find(id).state
