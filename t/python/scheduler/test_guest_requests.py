# SPDX-License-Identifier: LGPL-3.0-or-later
"""Limits of a guest's requests, and of their cost."""

import errno
import gc
import tracemalloc

import pytest
from peers import R, Rig, jobspec

from flux.constants import FLUX_NODEID_ANY, FLUX_RPC_NORESPONSE
from flux.scheduler.query import answering
from flux.scheduler.query.ingest import as_submitted
from flux.scheduler.testing.handle import FakeHandle, FakeMessage


@pytest.fixture
def rig():
    rig = Rig(R(8, 4), "sched-backfill")
    rig.client.become(9999)
    return rig


#: A name that would clear a terminal, and begin a line.
ODD = "e\x1b[2J\nx\x9b"


def when(rig, **system):
    errnum, answer = rig.ask("sched.when", {"jobspec": jobspec(1, **system)})
    return (answer if errnum else answer["verdict"]), answer


# -- hostlists and idsets that name more than there is ---------------------------------------------


@pytest.mark.parametrize(
    "hosts",
    [
        ["e0[0-999999999999999999]"],
        [f"d{n}[0-20000000]" for n in range(2000)],
        ["n1[000000-999999]-ib", "n[00-99999999]"],
    ],
)
def test_hosts_that_are_not_there_are_not_listed(rig, hosts):
    assert when(rig, constraints={"hostlist": hosts})[0] == "never"
    assert when(rig, constraints={"not": [{"hostlist": hosts}]})[0] == "now"
    assert when(rig, constraints={"hostlist": [*hosts, "n[0-999999999999999999]"]})[0] == "now"


@pytest.mark.parametrize(
    "constraint",
    [
        {"hostlist": ["n[0-1048574]x0"]},
        {"hostlist": ["n" * 256]},
        {"hostlist": ["n" * 250 + "[" + ",".join(["1"] * 10001) + "]"]},
        {"properties": ["^none"] * 10001},
        {"or": [{"properties": []}] * 10001},
        {"ranks": [",".join(map(str, range(0, 400000, 2)))]},
        {"properties": ["p" * 1000000]},
    ],
)
def test_a_constraint_that_costs_too_much_is_refused(rig, constraint):
    assert "invalid hostlist" in (said := when(rig, constraints=constraint)[0]) or "terms" in said
    rig.client.become(0)
    rig.alloc({1: jobspec(1, constraints=constraint), 2: jobspec(1)})
    assert "cannot parse jobspec" in rig.denied(1) and rig.started() == [2]


def test_a_count_of_many_ranges_is_refused(rig):
    spec = jobspec(1)
    spec["resources"][0]["count"] = ",".join(map(str, range(1, 400, 2)))
    assert "longer than 256 characters" in rig.ask("sched.when", {"jobspec": spec})[1]


@pytest.mark.parametrize("name", ["queue", "bank", "reservation"])
def test_a_name_of_any_length_is_refused(rig, name):
    """Tables are looked into by it, and one that is left out would go round a limit."""
    spec = jobspec(1, **{name: "x" * 257})
    rig.client.become(0)
    assert "257 characters" in rig.ask("feasibility.check", {"jobspec": spec})[1]
    rig.alloc(1, spec)
    assert "257 characters" in rig.denied(1)


def ask_and_withdraw(rig, first, count):
    """Large requests, each other than all before it: questions, and jobs that do not start."""
    for number in range(first, first + count):
        names = [f"^p{number}-{n}" for n in range(9000)]
        spec = jobspec(1, constraints={"properties": names})
        assert rig.ask("sched.when", {"jobspec": spec})[0] == 0
        assert rig.ask("feasibility.check", {"jobspec": spec})[0] == 0
        rig.alloc(number, jobspec(9999, constraints={"properties": names}))
        rig.arrive(number + 10000, spec)
        rig.cancel(number + 10000)
        rig.free(number + 10000) if number + 10000 in rig.started() else None
        rig.settle()
        rig.received.clear()
    rig.wait(10)


def test_the_memory_of_requests_is_bounded_in_bytes():
    rig = Rig(R(8, 4, gpus=1), "sched-backfill")
    rig.arrive(1, jobspec(8, nodes=8, exclusive=True))
    ask_and_withdraw(rig, 100, 1)
    gc.collect()
    tracemalloc.start()
    try:
        ask_and_withdraw(rig, 200, 4)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1e6
    finally:
        tracemalloc.stop()


# -- jobspecs --------------------------------------------------------------------------------------


def large(bytes=0, values=0):
    """A jobspec with much content that no part of the scheduler needs."""
    spec = jobspec(1)
    if bytes:
        spec["attributes"]["system"]["files"] = {"script": {"data": ", [" * (bytes // 3)}}
    if values:
        spec["attributes"]["user"] = {"list": [0] * values}
    return spec


@pytest.mark.parametrize(
    "spec, arg, option",
    [
        (large(bytes=20000), "jobspec-bytes=20000", "jobspec-bytes"),
        (large(values=1000), "jobspec-values=1000", "jobspec-values"),
        (large(values=60000), None, "jobspec-values"),
    ],
)
def test_a_jobspec_that_is_too_large_is_not_parsed(spec, arg, option):
    rig = Rig(R(8, 4), "sched-backfill", *([arg] if arg else []))
    rig.alloc({1: spec, 2: jobspec(1)})
    assert option in rig.denied(1) and rig.started() == [2]
    for topic in ("sched.when", "feasibility.check", "sched.explain"):
        errnum, text = rig.ask(topic, {"jobspec": spec})
        assert errnum and option in text
    # Without an id there is no job to answer for.
    rig.send("sched.alloc", {"jobspec": spec})
    assert "malformed request" in rig.logged()[-1]
    assert rig.ask("sched.when", {"jobspec": jobspec(1)})[0] == 0


def test_a_payload_of_too_many_bytes_is_refused_before_its_text_is_made(rig, monkeypatch):
    """The bindings take 0.1 s for 50 MB, and open questions keep their payloads."""
    monkeypatch.setattr(FakeMessage, "payload_size", 9 << 20)
    monkeypatch.setattr(FakeMessage, "payload_str", property(lambda msg: pytest.fail("it is read")))
    errnum, text = rig.ask("sched.when", {})
    assert errnum == errno.EINVAL and "jobspec-bytes" in text


def test_a_jobspec_that_is_just_small_enough(rig):
    """Strings count by their length only, and are not copied."""
    spec = large(bytes=1 << 20, values=40000)
    assert when(rig)[0] == "now"
    errnum, answer = rig.ask("sched.when", {"jobspec": spec})
    assert (errnum, answer["verdict"]) == (0, "now")
    script = spec["attributes"]["system"]["files"]
    found = as_submitted(spec, {"policy": {"jobspec": {"defaults": {"system": {"duration": 7}}}}})
    assert found["attributes"]["system"]["files"] is script


@pytest.mark.parametrize(
    "keys",
    [
        {"licenses": {ODD: 1}},
        {"licenses": {ODD: "two"}},
        {"placement": {"level": "rack", ODD: 1}},
        {"amounts": {ODD: 1}},
        {"constraints": {ODD: []}},
        {"constraints": {"hostlist": [ODD]}},
        {"deadline": ODD},
    ],
)
def test_messages_about_a_jobspec_can_change_no_terminal(keys):
    config = {"licenses": {"matlab": {"total": 3}}, "amounts": {"memory": "4G"}}
    config["topology"] = {"rack": {"groups": {"r0": "n[0-1]"}}}
    rig = Rig(R(2, 4), "sched-backfill", config=config)
    spec = jobspec(1, nodes=1, **keys)
    rig.alloc(1, spec)
    errnum, answer = rig.ask("sched.when", {"jobspec": spec})
    said = [rig.denied(1), answer if errnum else answer["reason"]]
    assert all("[2J" in text for text in said)
    texts = [*said, *rig.logged(), rig.ask("feasibility.check", {"jobspec": spec})[1] or ""]
    assert not [text for text in texts if not text.isprintable()]


@pytest.mark.parametrize(
    "name, shown", [("bank", "e?[2J?x?"), ("queue", "e?[2J?x?"), ("reservation", "e?[2J?x?"), ("reservation", 17)]
)  # fmt: skip
def test_nor_can_a_name_in_the_reason_of_a_wait(name, shown):
    """``--setattr`` reads JSON: the name of a reservation may be a number."""
    limits = {"one": {"per": name, "max": {"jobs": 1}}} if name != "reservation" else {}
    rig = Rig(R(2, 4), "sched-fifo", config={"limits": limits})
    rig.alloc((1, 2), jobspec(1, **{name: 17 if shown == 17 else ODD}))
    reason = rig.reason(2)
    assert f"{name} {shown}" in reason and reason.isprintable()


def test_one_open_question_too_many_is_to_be_asked_again(rig, monkeypatch):
    monkeypatch.setattr(answering, "MAX_OPEN_OF_GUEST", 0)
    errnum, text = rig.ask("sched.when", {"jobspec": jobspec(1)})
    assert errnum == errno.EAGAIN
    assert "try again later" in text


@pytest.mark.parametrize("uri", [None, "fd://5"])
def test_the_process_of_a_module_wakes_the_relay_of_its_messages(monkeypatch, uri):
    sent = []

    def rpc(self, topic, payload=None, nodeid=FLUX_NODEID_ANY, flags=0):
        sent.append((topic, flags))
        return send(self, topic, payload, nodeid, flags)

    send = FakeHandle.rpc
    monkeypatch.setattr(FakeHandle, "rpc", rpc)
    if uri is not None:
        monkeypatch.setenv("FLUX_MODULE_URI", uri)
    rig = Rig(R(2, 4), "sched-fifo")
    rig.wait(1)
    woken = sent.count(("broker.ping", FLUX_RPC_NORESPONSE))
    assert woken in ((0,) if uri is None else range(8, 12))
