# SPDX-License-Identifier: LGPL-3.0-or-later
"""Traces of a real instance replayed: what it sent goes in, what comes out is compared with what
its scheduler said.

Times are of this run, so of R the times are compared as durations, and of estimates whether there
is one. What we say beyond the reference (reasons, the clearing of annotations before a cancel) is
left out of the comparison.
"""

import base64
import json

import pytest
from peers import R, Rig, VirtualClock, jobspec
from shared import load_jsonl, optional_jsonl, recorded_cases

FILES = [
    "acquire",
    "acquire-expiration",
    "alloc-ranges",
    "alloc-sequences",
    "alloc-shapes",
    "hello",
    "lifecycle",
    "queues-config",
    "rpc-trace",
    "sched-debug-bits",
]
SUCCESS, ANNOTATE, DENY, CANCEL = range(4)

#: Messages that came so many seconds apart were taken by the reference without a pass in between.
TOGETHER = 0.0012

#: What the reference refuses and we honour (spec of counts: stepped and listed values).
HONOURED = "specifies discrete valid values"


def runs(name):
    """The life of each scheduler module in a trace: (module, args, messages)."""
    found = []
    for line in load_jsonl(f"golden/{name}.jsonl"):
        if line.get("mark") == "scheduler module starts":
            found.append((line["module"], line["args"], []))
        elif found and "mark" not in line:
            found[-1][2].append(line)
    return found


def cases():
    for name in FILES:
        if optional_jsonl(f"golden/{name}.jsonl"):
            for number, run in enumerate(runs(name)):
                yield pytest.param(run, id=f"{name}-{number}-{run[0]}")


class Replay:
    def __init__(self, module, args, messages):
        self.messages = messages
        self.expected = {}
        self.actual = {}
        self.specs = {}
        self.last = 0.0
        first = next(
            (
                m["payload"]
                for m in messages
                if m["topic"] == "resource.acquire" and m["dir"] == "recv" and not m["errnum"]
            ),
            None,
        )
        self.first = first
        self.module = module
        if first is None:
            return
        self.rig = rig = Rig(
            first["resources"], up=first["up"], clock=VirtualClock(1_795_182_000.0)
        )
        self.begin = rig.now
        looked = {}
        key = None
        for m in messages:
            if m["topic"] == "kvs.lookup" and m["dir"] == "send":
                key = m["payload"]["key"]
            elif m["topic"] == "kvs.lookup":
                looked[key] = json.loads(base64.b64decode(m["payload"]["val"]["data"]))
            elif m["topic"] == "job-manager.sched-hello" and m["dir"] == "recv" and not m["errnum"]:
                rig.manager.running.append(m["payload"])
        from flux.scheduler.host import r_key

        for job in rig.manager.running:
            rig.info.R[job["id"]] = looked[r_key(job["id"])]
        rig.client.tell = self.told
        rig.load(module, *args)

    def told(self, payload):
        if payload["type"] != ANNOTATE:
            self.actual.setdefault(payload["id"], []).append(payload)

    def run(self):
        rig = self.rig
        ready = False
        skip = {
            "service.add",
            "module.status",
            "kvs.commit",
            "kvs.lookup",
            "resource.acquire",
            "job-manager.raise",
        }
        came = [m["t"] for m in self.messages if m["dir"] == "recv" and m["type"] == "request"] + [
            1e9
        ]
        for m in self.messages:
            topic = m["topic"]
            if topic == "job-manager.sched-ready" and m["dir"] == "send":
                assert rig.manager.ready_request == m["payload"]
            elif topic == "job-manager.sched-hello" and m["dir"] == "send":
                assert rig.manager.hello_request == m["payload"]
            elif topic == "resource.acquire" and m["dir"] == "recv":
                if ready and not m["errnum"]:
                    self.pass_until(m["t"])
                    rig.resource.respond(rig.resource.stream, m["payload"])
                ready = True
            elif (
                topic.startswith("sched.")
                or topic.endswith(".debug")
                or topic == "feasibility.check"
            ):
                if m["dir"] == "recv" and m["type"] == "request":
                    came.pop(0)
                    self.pass_until(m["t"])
                    self.request(m)
                    if came[0] - m["t"] > TOGETHER:
                        rig.settle()
                elif (
                    topic == "sched.alloc" and not m["errnum"] and m["payload"]["type"] != ANNOTATE
                ):
                    self.expected.setdefault(m["payload"]["id"], []).append(m["payload"])
                    self.let_go(m["payload"])
            else:
                if m["dir"] == "recv" and m["type"] == "request":
                    came.pop(0)
                assert (
                    topic in skip
                    or topic.split(".")[1]
                    in (
                        "sched-hello sched-ready shutdown disconnect config-reload stats-get stats-clear ping rusage nosuch"
                        " config-get resource-status sched-status raise"
                    ).split()
                ), topic
        rig.settle()

    def request(self, m):
        rig = self.rig
        if m.get("rolemask") and "owner" not in m["rolemask"]:
            return
        topic = m["topic"]
        if topic.endswith(".debug"):
            op, flags = m["payload"]["op"], m["payload"]["flags"]
            word = rig.task.aux.get("debug_flags", 0)
            rig.task.aux["debug_flags"] = {
                "setbit": word | flags,
                "clrbit": word & ~flags,
                "clr": 0,
                "set": flags,
            }[op]
            return
        if topic == "sched.free" and not self.holds(m["payload"]["id"]):
            return  # a job that ended with the scheduler we stand in for
        payload = m["payload"]
        if topic == "sched.free":
            payload = dict(payload, R=self.ours(payload))
        if topic == "sched.alloc":
            self.specs[payload["id"]] = payload["jobspec"]
        rig.send(topic, payload, respond=topic != "sched.free")

    def ours(self, payload):
        """What comes back of a job, where we gave it something else than the reference did."""
        mine = self.actual.get(payload["id"], [])
        theirs = self.expected.get(payload["id"], [])
        if (
            mine
            and theirs
            and mine[-1]["type"] == SUCCESS
            and meaning(mine[-1]["R"]) != meaning(theirs[-1]["R"])
        ):
            return mine[-1]["R"]
        return payload["R"]

    def holds(self, jobid):
        return any(known == jobid for known, _ in self.rig.sched.resources.job_end_times())

    def pass_until(self, t):
        together, self.last = t - self.last < TOGETHER, t
        if not together and self.begin + t > self.rig.now:
            self.rig.wait(self.begin + t - self.rig.now)

    def let_go(self, expected):
        """Where the reference refused and we did not, the resources must not stay taken."""
        jobid = expected["id"]
        if expected["type"] == DENY and self.holds(jobid):
            assert HONOURED in expected["note"], expected
            self.rig.free(jobid, self.actual[jobid][-1]["R"])
            self.rig.settle()


def plain(resources):
    """Whether a request is of a form in which the reference does what the specification says.

    It takes ranges of slots on a node for their minimum, counts a slot of several nodes by its
    nodes, and does not look at what lies between or beside node and slot.
    """
    if not isinstance(resources, list) or len(resources) != 1:
        return False
    vertex = resources[0]
    if vertex["type"] == "node":
        within = vertex.get("with", [])
        return len(within) == 1 and type(within[0].get("count")) is int and plain(within)
    types = [child["type"] for child in vertex.get("with", [])]
    return (
        vertex["type"] == "slot"
        and type(vertex["count"]) is not float
        and types in (["core"], ["core", "gpu"])
    )


def meaning(R):
    """What of an R is compared: everything but the times, which become how long it lasts."""
    execution = dict(R["execution"])
    start, end = execution.pop("starttime", 0), execution.pop("expiration", 0)
    # An end that is the instance's own is a time of the recording.
    execution["lasts"] = round(end - start) if end and start < end < start + 1e6 else 0
    return dict(R, execution=execution)


@pytest.mark.parametrize("run", recorded_cases(cases()))
def test_replay(run, shared_data):
    module, args, messages = run
    if any("pool-class" in arg for arg in args):
        pytest.skip("a trace of another pool")
    replay = Replay(module, args, messages)
    if replay.first is None:
        pytest.skip("the module never got its resources")
    replay.run()
    raised = [
        m["payload"] for m in messages if m["topic"] == "job-manager.raise" and m["dir"] == "send"
    ]
    assert replay.rig.manager.raised == raised
    assert replay.rig.sched.stats_get()["errors"] == len(raised)
    for jobid, expected in replay.expected.items():
        actual = replay.actual.get(jobid, [])
        if expected[-1]["type"] == DENY and HONOURED in expected[-1]["note"]:
            continue
        if not plain(replay.specs[jobid]["resources"]) and [p["type"] for p in expected] == [
            SUCCESS
        ]:
            continue
        assert [p["type"] for p in actual] == [p["type"] for p in expected], f"job {jobid}"
        for mine, theirs in zip(actual, expected):
            compare(replay.specs[jobid], mine, theirs)


def compare(spec, mine, theirs):
    if theirs["type"] == SUCCESS:
        assert list(mine) == list(theirs)
        if not plain(spec["resources"]):
            return
        got, wanted = meaning(mine["R"]), meaning(theirs["R"])
        if (
            wanted["execution"]["lasts"]
            and got["execution"]["lasts"] != wanted["execution"]["lasts"]
        ):
            # The end of the instance: in the recording's time, which ours does not share.
            del got["execution"]["lasts"], wanted["execution"]["lasts"]
        assert got == wanted
        mine, theirs = mine["annotations"]["sched"], theirs["annotations"]["sched"]
        assert mine["resource_summary"] == theirs["resource_summary"]
        assert ("backfill" in mine) == ("backfill" in theirs)
        for key, value in theirs.items():
            if value is None and key == "t_estimate":
                assert mine[key] is None
    elif theirs["type"] == DENY:
        if theirs["note"].startswith("unsatisfiable"):
            # Ours goes on: why nodes were left out.
            assert mine["note"].partition(";")[0] == theirs["note"]
        else:
            assert mine["note"].partition(":")[0] == theirs["note"].partition(":")[0]
    else:
        assert mine == theirs


def requests(topic):
    for line in optional_jsonl("golden/rpc.jsonl"):
        if line["request"]["topic"] == topic and not line["request"].get("as_guest"):
            module = line["scenario"].split()[0].rstrip(":")
            if module.startswith("sched-"):
                yield module, line


@pytest.fixture(scope="module")
def occupied():
    """The state in which rpc.jsonl was recorded: a job of 3 slots with a GPU each, rank 3
    drained."""
    rigs = {}

    def get(module, idle=False):
        if (module, idle) not in rigs:
            inventory = R(
                4, 4, 2, properties={"big": "0-1", "small": "2-3"}, scheduling={"mykey": [1, 2]}
            )
            rig = rigs[module, idle] = Rig(inventory)
            rig.load(module)
            if not idle:
                rig.alloc(1, jobspec(3, gpus=1))
                rig.resource.update(down="3")
            rig.settle()
        return rigs[module, idle]

    return get


@pytest.mark.parametrize("module", ["sched-fifo", "sched-simple", "sched-backfill"])
def test_feasibility(module, occupied, shared_data):
    rig = occupied(module)
    checked = 0
    for name, line in requests("feasibility.check"):
        if name != module:
            continue
        wanted = line["response"]
        errnum, answer = rig.ask("feasibility.check", line["request"]["payload"])
        spec = (line["request"]["payload"] or {}).get("jobspec")
        text = wanted.get("errmsg", "")
        if HONOURED in text or (wanted["errnum"] == 0 and not plain(spec["resources"])):
            continue
        assert errnum == (22 if wanted["errnum"] else 0), line
        if text.startswith(("unsatisfiable", "unknown constraint")):
            assert answer.partition(";")[0] == text
        checked += 1
    assert checked > 20


@pytest.mark.parametrize("module", ["sched-fifo", "sched-simple", "sched-backfill"])
def test_resource_status(module, occupied, shared_data):
    checked = 0
    for name, line in requests("sched.resource-status"):
        if (
            name != module
            or "idle" not in line["scenario"]
            and "rank 3 drained" not in line["scenario"]
        ):
            continue
        rig = occupied(module, idle="idle" in line["scenario"])
        errnum, answer = rig.ask("sched.resource-status")
        assert errnum == 0
        for key, wanted in line["response"]["payload"].items():
            for part in ("R_lite",) if key == "down" else ("R_lite", "properties"):
                assert answer[key]["execution"].get(part, {}) == wanted["execution"].get(
                    part, {}
                ), (key, part)
            if key == "all":
                assert answer[key] == wanted
        checked += 1
    assert checked >= 1


def test_log_lines(shared_data):
    """The lines that each module logs at debug level for two jobs that start and end."""
    wanted = {}
    for line in optional_jsonl("golden/sched-log.jsonl"):
        wanted.setdefault(line["module"], []).append(line["line"])
    assert len(wanted) == 3
    for module, lines in wanted.items():
        rig = Rig(R(2, 2), module, "log-level=debug")
        rig.alloc(1, jobspec(2, nodes=1, duration=3600))
        rig.settle()
        if module == "sched-backfill":
            rig.alloc(3, jobspec(4, duration=10), priority=20)
            rig.settle()
        rig.alloc(2, jobspec(1, duration=60))
        rig.settle()
        for jobid in (2, 1) if "rank1/core0 (final)" in lines[-2] else (1, 2):
            rig.free(jobid)
            rig.settle()
            if module == "sched-backfill" and jobid == 2:
                rig.cancel(3)
                rig.settle()
        assert [normal(text) for text in rig.logged()] == [
            normal(text.partition(": ")[2]) for text in lines
        ]


def normal(text):
    words = ["ID" if word[0] == "ƒ" else word for word in text.split(" ")]
    return " ".join("(shadow)" if word.startswith("(shadow=") else word for word in words)
