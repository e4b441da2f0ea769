# SPDX-License-Identifier: LGPL-3.0-or-later
"""A scheduler that decides nothing: every job gets rank 0, core 0, one job a core at a time.

It measures the cost of a broker module in Python and the rate of starts of a broker, without any
scheduling; R is stored before the answer, as RFC 27 requires.  With the argument `unbounded` it answers
all requests at once, as if the machine had no end: that is the rate of the broker itself.
"""

import collections
import errno
import json
import math

from flux.brokermod import BrokerModule, request_handler
from flux.constants import FLUX_RPC_STREAMING
from flux.idset import IDset
from flux.kvs import KVSTxn

R = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0", "children": {"core": "0"}}],
        "nodelist": ["n0"],
        "starttime": 0,
        "expiration": 0,
    },
}
TEXT = json.dumps(R)


class Null(BrokerModule):
    def run(self):
        self.handle.service_register("sched").get()
        self.set_running()
        self.acquire = self.handle.rpc("resource.acquire", flags=FLUX_RPC_STREAMING)
        self.free_cores = math.inf
        if "unbounded" not in self.args:
            execution = self.acquire.get()["resources"]["execution"]
            self.free_cores = sum(
                IDset(group["rank"]).count() * IDset(group["children"]["core"]).count()
                for group in execution["R_lite"]
            )
        hello = self.handle.rpc(
            "job-manager.sched-hello", {"partial-ok": True}, flags=FLUX_RPC_STREAMING
        )
        try:
            while True:
                hello.get()
                hello.reset()
        except OSError as exc:
            if exc.errno != errno.ENODATA:
                raise
        self.handle.rpc("job-manager.sched-ready", {"mode": "unlimited"}).get()
        self.waiting = collections.deque()
        self.batch = []
        self.timer = self.handle.timer_watcher_create(0.0, lambda *args: self.commit())
        super().run()

    @request_handler("sched.alloc", prefix=False)
    def alloc(self, msg):
        self.waiting.append((msg, msg.payload["id"]))
        self.look()

    def look(self):
        """Have the next batch stored at the end of this turn, if there is one."""
        if self.waiting and not self.batch and self.free_cores:
            self.timer.reset(after=0.0)

    def commit(self):
        count = min(len(self.waiting), self.free_cores)
        if self.batch or not count:
            return
        self.free_cores -= count
        self.batch = [self.waiting.popleft() for _ in range(count)]
        txn = KVSTxn(self.handle)
        for _, jobid in self.batch:
            digits = f"{jobid:016x}"
            directory = ".".join(digits[i : i + 4] for i in range(0, 16, 4))
            txn.put(f"job.{directory}.R", TEXT, raw=True)
        txn.commit_async().then(self.stored)

    def stored(self, future):
        future.get()
        for msg, jobid in self.batch:
            self.handle.respond(msg, f'{{"id": {jobid}, "type": 0, "R": {TEXT}}}')
        self.batch = []
        self.look()

    @request_handler("sched.free", prefix=False)
    def free(self, msg):
        msg.payload["id"]
        self.free_cores += 1
        self.look()

    @request_handler("sched.cancel", prefix=False)
    def cancel(self, msg):
        pass

    @request_handler("sched.prioritize", prefix=False)
    def prioritize(self, msg):
        pass


def mod_main(h, *args):
    Null(h, *args).run()
