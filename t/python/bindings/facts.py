"""Facts about flux-core's Python bindings, on both a real Flux and the embedded instance.

Each fact is a function of a handle.  Run as a program, this uses ``flux.Flux()`` and prints the
names of the facts that hold; so it can be run in a real Flux as well::

    flux start flux python t/python/bindings/facts.py [FACT ...]
"""

import contextlib
import errno
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import traceback

import flux
import flux.job
import flux.kvs
from _flux._core import ffi, lib
from flux.constants import (
    FLUX_MSGTYPE_EVENT,
    FLUX_MSGTYPE_REQUEST,
    FLUX_NODEID_ANY,
    FLUX_RPC_NORESPONSE,
    FLUX_RPC_STREAMING,
)
from flux.core.inner import raw
from flux.future import Future, FutureExt, WaitAllFuture
from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.job import JobID
from flux.wrapper import InvalidArguments, MissingFunctionError, WrongNumArguments


def raises(error, call, number=None, text=None):
    try:
        call()
    except error as exc:
        assert number is None or exc.errno == number, exc.errno
        assert text is None or exc.strerror == text, exc.strerror
        return exc
    raise AssertionError(f"{error} was not raised")


def run(h, *watchers):
    """Run the reactor until it is stopped, or for a limited time."""
    late = h.timer_watcher_create(20.0, lambda *a: h.reactor_stop_error())
    for watcher in (late, *watchers):
        watcher.start()
    try:
        return h.reactor_run()
    finally:
        for watcher in (late, *watchers):
            watcher.destroy()


@contextlib.contextmanager
def pipe():
    """The reading and the writing end of a pipe with a byte in it."""
    ends = os.pipe()
    os.write(ends[1], b"x")
    yield ends
    for end in ends:
        os.close(end)


def later(h, seconds, function):
    return h.timer_watcher_create(seconds, lambda *a: function())


# -- requests ----------------------------------------------------------------------------------------------


def fact_payloads(h):
    for payload in ({"a": 1}, '{"a": 1}', b'{"a": 1}'):
        rpc = h.rpc("kvs.ping", payload, FLUX_NODEID_ANY, 0)
        assert rpc.get()["a"] == json.loads(rpc.get_str())["a"] == 1
        assert rpc.get() == rpc.get() and rpc.get() is not rpc.get()
    assert h.rpc("kvs.stats-clear").get() is None and h.rpc("kvs.stats-clear").get_str() is None
    raises(TypeError, lambda: h.rpc("kvs.ping", {"a": object()}))
    raises(TypeError, lambda: h.rpc(3))
    raises(OSError, lambda: h.rpc(None), errno.EINVAL, "Topic must not be None/NULL")
    assert h.rpc("kvs.ping", {"a": "ƒ"}).get()["a"] == "ƒ"


def fact_unknown_targets(h):
    for topic, text in (
        ("nosuch.x", "No service matching nosuch.x is registered"),
        ("kvs.nosuch", "Unknown service method 'kvs.nosuch'"),
    ):
        raises(OSError, h.rpc(topic).get, errno.ENOSYS, text)
    raises(OSError, h.rpc("kvs.ping", nodeid=99).get, errno.EHOSTUNREACH, "No route to host")


def fact_arguments(h):
    """Values that C's types cannot hold are refused before a message is sent."""
    raises(OverflowError, lambda: h.rpc("kvs.ping", nodeid=-1))
    raises(OverflowError, lambda: h.rpc("kvs.ping", nodeid=1 << 32))
    raises(InvalidArguments, lambda: h.rpc("kvs.ping", nodeid="0"))
    raises(InvalidArguments, lambda: h.rpc("kvs.ping", flags=None))
    raises(OSError, lambda: h.rpc("kvs.ping", flags=64), errno.EINVAL, "EINVAL: Invalid argument")
    raises(WrongNumArguments, lambda: h.respond_error())
    raises(WrongNumArguments, lambda: raw.flux_future_create(None))
    raises(InvalidArguments, lambda: h.respond_error(3, 1, None))
    raises(MissingFunctionError, lambda: h.no_such_function(1))
    raises(OSError, lambda: h.flux_attr_get(None), errno.EINVAL)
    raises(InvalidArguments, lambda: h.flux_attr_get(3))
    raises(OSError, lambda: h.respond(None), errno.EINVAL)
    raises(OverflowError, lambda: JobID(-1).f58)
    raises(TypeError, lambda: h.log("err", "text"))
    rpc = h.rpc("kvs.ping", {})
    raises(InvalidArguments, lambda: rpc.wait_for("a"))
    rpc.get()


def fact_functions_by_name(h):
    """Functions called by their C names report failures as in C."""
    assert lib.flux_attr_get(h.handle, b"nosuch") == ffi.NULL and ffi.errno == errno.ENOENT
    assert ffi.string(lib.flux_attr_get(h.handle, b"rank")) == b"0"
    raises(TypeError, lambda: lib.flux_attr_get(h.handle, "rank"))
    raises(TypeError, lambda: lib.flux_attr_get(h.handle))
    assert lib.flux_future_wait_for(ffi.NULL, 0.0) == -1 and ffi.errno == errno.EINVAL
    assert ffi.typeof(lib.flux_attr_get).result.kind == "pointer"
    assert ffi.typeof(h.handle) is ffi.typeof("flux_t *")
    assert h.flux_get_rank is not None and not ffi.NULL
    constants = vars(flux.constants)
    known = "JOB_PRIORITY_MAX JOB_URGENCY_MAX JOB_STATE_NEW MSGTYPE_CONTROL ROLE_LOCAL".split()
    assert [constants[f"FLUX_{name}"] for name in known] == [(1 << 32) - 1, 31, 1, 8, 4]
    number = ffi.new("int[1]")
    assert number[0] == 0 and len(ffi.new("char[]", 8)) == 8
    assert ffi.string(ffi.new("char[]", b"text")) == b"text"
    raises((RuntimeError, TypeError), lambda: ffi.string(ffi.NULL))


def fact_attributes_and_configuration(h):
    assert h.get_rank() == 0 and h.attr_get("rank") == "0"
    raises(FileNotFoundError, lambda: h.attr_get("nosuch"), errno.ENOENT)
    for name, value in (("x", 1), (1, "x")):
        raises(ValueError, lambda name=name, value=value: h.attr_set(name, value))
    h.attr_set("log-stderr-level", "2")
    assert h.attr_get("log-stderr-level") == "2"
    assert isinstance(h.conf_get(), dict)
    assert h.conf_get("no.such.key") is None and h.conf_get("no.such.key", default=3) == 3
    h.rpc("config.load", {"tbl": {"key": 1}}).get()
    assert h.conf_get("tbl.key") is None, "the configuration is fetched once"
    assert h.conf_get("tbl.key", update=True) == 1 and h.conf_get("tbl") == {"key": 1}


def dmesg(h):
    return h.rpc("log.dmesg", {"follow": False, "nobacklog": False}, flags=FLUX_RPC_STREAMING)


# -- futures -----------------------------------------------------------------------------------------------


def fact_futures(h):
    rpc = h.rpc("kvs.ping", {})
    assert rpc.get_flux().handle == h.handle
    assert rpc.wait_for(5) is rpc and rpc.is_ready()
    assert rpc.error_string() is None
    failed = h.rpc("kvs.nosuch")
    raises(OSError, failed.get)
    raises(OSError, failed.get)
    assert failed.error_string() == "Unknown service method 'kvs.nosuch'"
    none = h.rpc("kvs.ping", {}, flags=FLUX_RPC_NORESPONSE)
    assert none.is_ready()
    raises(OSError, none.get, errno.EINVAL)
    again = Future(rpc)
    del rpc
    assert again.is_ready() and again.get() is None


def fact_waiting_in_vain(h):
    never = FutureExt(lambda f: None, flux_handle=h)
    raises(TimeoutError, lambda: never.wait_for(0.01), errno.ETIMEDOUT)
    raises(TimeoutError, lambda: never.wait_for(0), errno.ETIMEDOUT)
    raises(OSError, never.get, errno.EDEADLK)
    raises(OSError, lambda: FutureExt(lambda f: None).then(print), errno.EINVAL)
    assert FutureExt(lambda f: None).get_flux() is None


def fact_callbacks(h):
    seen = []

    def answered(future, *args, **kwargs):
        seen.append((future.get()["n"], args, kwargs))
        if len(seen) == 2:
            h.reactor_stop()

    for n in (1, 2):
        future = h.rpc("kvs.ping", {"n": n})
        assert future.then(answered, n, key="word") is future
        raises(FileExistsError, lambda future=future: future.then(answered))
    raises(ValueError, lambda: h.rpc("kvs.ping", {}).then(None))
    run(h)
    assert seen == [(1, (1,), {"key": "word"}), (2, (2,), {"key": "word"})]


def fact_callback_in_time(h):
    seen = []

    def overdue(future):
        seen.append(raises(TimeoutError, future.get).errno)
        h.reactor_stop()

    FutureExt(lambda f: None, flux_handle=h).then(overdue, timeout=0.01)
    run(h)
    assert seen == [errno.ETIMEDOUT]


def fact_futures_of_ones_own(h):
    made = FutureExt(lambda f, value: f.fulfill({"v": value}), 3, flux_handle=h)
    assert made.get() == {"v": 3} and made.get() == {"v": 3}
    failing = FutureExt(lambda f: f.fulfill_error(errno.EPERM, "no"), flux_handle=h)
    raises(PermissionError, failing.get, errno.EPERM)
    assert failing.error_string() == "no"
    # Requests by the handle that `init` gets are answered during a wait.

    def ask(future):
        rpc = future.get_flux().rpc("kvs.ping", {"n": 4})
        rpc.then(lambda f: future.fulfill(f.get()["n"]))

    assert FutureExt(ask, flux_handle=h).get() == 4
    seen = []
    several = FutureExt(lambda f: [f.fulfill(n) for n in (1, 2, 3)], flux_handle=h)

    def one(future):
        seen.append(future.get())
        future.reset()
        if len(seen) == 3:
            h.reactor_stop()

    several.then(one)
    run(h)
    assert seen == [1, 2, 3]


def fact_waiting_for_all(h):
    rpcs = [h.rpc("kvs.ping", {"n": n}) for n in range(3)]
    every = WaitAllFuture()
    for rpc in rpcs:
        every.push(rpc)
    every.get()
    assert all(rpc.is_ready() for rpc in rpcs) and len(every.children) == 3
    failing = WaitAllFuture()
    failing.push(h.rpc("kvs.ping", {}), "a")
    raises(OSError, lambda: failing.push(h.rpc("kvs.ping", {}), "a"), errno.EEXIST)
    failing.push(h.rpc("kvs.nosuch"), "b")
    raises(OSError, failing.get, errno.ENOSYS)
    seen = []
    third = WaitAllFuture()
    third.push(h.rpc("kvs.ping", {}))
    third.then(lambda f: (seen.append(f.is_ready()), h.reactor_stop()))
    run(h)
    assert seen == [True]


def fact_streams(h):
    h.log(6, "one")
    seen = []

    def entry(future):
        try:
            seen.append(future.get_str())
        except OSError as exc:
            seen.append(exc.errno)
            h.reactor_stop()
        future.reset()

    rpc = dmesg(h)
    seen.append(rpc.get_str())
    rpc.reset()
    rpc.then(entry)
    run(h)
    assert seen.pop() == errno.ENODATA and any("one" in text for text in seen)


def fact_a_forgotten_reset_repeats_the_first(h):
    h.log(6, "one")
    h.log(6, "two")
    texts = []
    rpc = dmesg(h)
    rpc.then(lambda f: texts.append(f.get_str()))
    stop = later(h, 0.3, h.reactor_stop)
    run(h, stop)
    assert texts and len(set(texts)) == 1


def fact_a_stopped_future_is_silent(h):
    seen = []
    rpc = h.rpc("kvs.ping", {}).then(seen.append)
    rpc.stop()
    run(h, later(h, 0.05, h.reactor_stop))
    assert seen == []


# -- messages ----------------------------------------------------------------------------------------------


def fact_requests_to_a_service_of_ones_own(h):
    h.service_register("facts").get()
    kept, answers = [], []

    def request(handle, watcher, msg, args):
        assert handle is h and args == "args"
        kept.append(msg)
        if msg.topic == "facts.later":
            # A message may be kept and answered long after its handler has returned.
            timer.start()
        elif msg.topic == "facts.error":
            assert handle.respond_error(msg, errno.EPERM, msg.payload["text"]) == 0
        else:
            handle.respond(msg)

    def answer(handle, watcher, revents, args):
        h.respond(kept[0], {"late": True})

    def done(future):
        try:
            answers.append(future.get())
        except OSError as exc:
            answers.append((exc.errno, exc.strerror))
        if len(answers) == 5:
            h.reactor_stop()

    timer = h.timer_watcher_create(0.01, answer)
    watcher = h.msg_watcher_create(request, FLUX_MSGTYPE_REQUEST, "facts.[elp]*", args="args")
    assert watcher.start() is None
    for topic, payload in (
        ("later", None), ("plain", {}), ("error", {"text": None}), ("error", {"text": "why"}), ("no", None),
    ):  # fmt: skip
        h.rpc(f"facts.{topic}", payload).then(done)
    run(h)
    assert watcher.stop() is None
    timer.destroy()
    watcher.destroy()
    h.service_unregister("facts").get()
    raises(OSError, h.rpc("facts.plain").get, errno.ENOSYS)
    assert {"late": True} in answers and None in answers, answers
    assert (errno.EPERM, "why") in answers and (errno.EPERM, os.strerror(errno.EPERM)) in answers
    assert (errno.ENOSYS, "Unknown service method 'facts.no'") in answers
    msg = kept[0]
    assert (msg.type, msg.type_str, msg.topic) == (FLUX_MSGTYPE_REQUEST, "request", "facts.later")
    assert (msg.userid, msg.rolemask, msg.payload_str) == (os.getuid(), 5, None)
    raises(TypeError, lambda: msg.payload)
    assert kept[1].decode() == (1, "facts.plain", "{}")


def fact_messages(h):
    msg = flux.message.Message()
    msg.topic = "a.b"
    msg.payload = {"x": "é"}
    assert (msg.topic, msg.payload, msg.type_str) == ("a.b", {"x": "é"}, "request")
    payload, size = ffi.new("const void *[1]"), ffi.new("size_t [1]")
    assert lib.flux_msg_get_payload(msg.handle, payload, size) == 0
    assert size[0] == len(msg.payload_str.encode()) + 1, "with the zero at its end"
    msg.userid, msg.rolemask = 7, 2
    assert (msg.userid, msg.rolemask) == (7, 2)
    msg.payload_str = None
    assert msg.payload_str is None
    assert lib.flux_msg_get_payload(msg.handle, payload, size) == -1 and ffi.errno == errno.EPROTO
    raises(OSError, lambda: flux.message.Message(99), errno.EINVAL)
    event = h.event_create("e.x", {"n": 1})
    assert event.decode() == (FLUX_MSGTYPE_EVENT, "e.x", '{"n": 1}')


def fact_service_names(h):
    raises(FileExistsError, h.service_register("kvs").get, errno.EEXIST)
    raises(FileNotFoundError, h.service_unregister("nosuch").get, errno.ENOENT)
    assert h.service_register("once").get() is None
    raises(FileExistsError, h.service_register("once").get)
    h.service_unregister("once").get()
    raises(OSError, lambda: h.service_register(None), errno.EINVAL)


def fact_events(h):
    raises(OSError, lambda: h.event_subscribe(None), errno.EINVAL)
    h.event_subscribe("facts")
    seen = []

    def event(handle, watcher, msg, args):
        seen.append((msg.topic, msg.payload if msg.payload_str else None))
        if msg.topic == "facts.last":
            h.reactor_stop()

    watcher = h.msg_watcher_create(event, FLUX_MSGTYPE_EVENT, "facts.*")
    for topic, payload in (("facts.a", {"n": 1}), ("other", None), ("facts.last", None)):
        h.event_send(topic, payload)
    run(h, watcher)
    assert seen == [("facts.a", {"n": 1}), ("facts.last", None)]
    h.event_unsubscribe("facts")


# -- watchers ----------------------------------------------------------------------------------------------


def fact_timers(h):
    seen = []
    times = (0.15, 0.05, 0.1)
    watchers = [later(h, after, lambda after=after: seen.append(after)) for after in times]
    repeated = h.timer_watcher_create(0.005, lambda *a: seen.append("r"), repeat=0.005)
    run(h, *watchers, repeated, later(h, 0.3, h.reactor_stop))
    assert [x for x in seen if x != "r"] == [0.05, 0.1, 0.15]
    assert seen.count("r") >= 5
    raises(OSError, lambda: h.timer_watcher_create(-1, print), errno.EINVAL)


def fact_timers_started_again(h):
    seen = []
    one = later(h, 0.01, lambda: seen.append("one"))
    assert one.start() is one and one.stop() is one
    run(h, later(h, 0.05, h.reactor_stop))
    assert seen == []
    one.reset()
    run(h, later(h, 0.1, h.reactor_stop))
    assert seen == ["one"]
    one.start()  # an expired timer fires at once
    run(h, later(h, 0.1, h.reactor_stop))
    assert seen == ["one", "one"]
    long = later(h, 30.0, lambda: seen.append("long")).start()
    long.reset(0.0)  # it is running: no effect
    run(h, later(h, 0.05, h.reactor_stop))
    long.stop()
    long.reset(0.0)
    run(h, later(h, 0.1, h.reactor_stop))
    assert seen == ["one", "one", "long"]


def fact_the_loops_clock(h):
    reactor = h.get_reactor()
    times = []
    run(h, later(h, 0.02, lambda: (times.append(h.reactor_now(reactor)), h.reactor_stop())))
    assert h.flux_reactor_now(h.flux_get_reactor()) >= times[0] > 1e9


def fact_idle_prepare_check(h):
    order = []

    def note(name):
        def callback(handle, watcher, revents, args):
            if len(order) < 6:
                order.append(name)
            if len(order) == 6:
                h.reactor_stop()

        return callback

    kinds = (h.idle_watcher_create, h.prepare_watcher_create, h.check_watcher_create)
    run(h, *(kind(note(kind.__name__.partition("_")[0])) for kind in kinds))
    first = order.index("prepare")  # the loop may be in the middle of a turn
    assert order[first : first + 3] == ["prepare", "check", "idle"], order
    turns = []
    count = lambda *a: (turns.append(1), len(turns) == 50 and h.reactor_stop())
    run(h, h.idle_watcher_create(), h.prepare_watcher_create(count))
    assert len(turns) == 50


def fact_descriptors(h):
    seen = []

    def readable(handle, watcher, fd, revents, args):
        seen.append((handle is h, os.read(fd, 10), revents & 1, args))
        h.reactor_stop()

    with pipe() as (reader, _), h.fd_watcher_create(reader, readable, args="a"):
        run(h)
    assert seen == [(True, b"x", 1, "a")]
    raises(InvalidArguments, lambda: h.fd_watcher_create("0", readable))


def fact_signals(h):
    seen = []

    def caught(handle, watcher, signum, args):
        seen.append(signum)
        h.reactor_stop()

    watcher = h.signal_watcher_create(signal.SIGUSR1, caught)
    run(h, watcher, later(h, 0.01, lambda: os.kill(os.getpid(), signal.SIGUSR1)))
    assert seen == [signal.SIGUSR1]
    raises(OSError, lambda: h.signal_watcher_create(0, caught), errno.EINVAL)
    raises(OSError, lambda: h.signal_watcher_create(1000, caught), errno.EINVAL)


def fact_what_stops_the_reactor(h):
    forgotten = h.timer_watcher_create(60.0, lambda *a: None).start()
    del forgotten  # a started watcher without a reference still counts, and still fires
    assert run(h, later(h, 0.0, h.reactor_stop)) >= 1
    assert run(h, later(h, 0.0, h.reactor_stop_error)) == -1
    for watcher in list(h._active_watchers):
        watcher.destroy()
    assert h.reactor_run() == 0, "nothing is left to wait for"
    alone = h.timer_watcher_create(60.0, lambda *a: None).start()
    alone.unref()
    assert h.reactor_run() == 0, "what was let go of does not count"
    alone.destroy()


def fact_exceptions_leave_the_reactor(h):
    class Fault(Exception):
        pass

    def fail(*args):
        raise Fault

    with pipe() as (reader, _):
        for create, *args in (
            (h.timer_watcher_create, 0.0), (h.idle_watcher_create,), (h.prepare_watcher_create,),
            (h.check_watcher_create,), (h.fd_watcher_create, reader),
        ):  # fmt: skip
            # A check watcher by itself does not keep the loop from sleeping.
            watchers = create(*args, fail), h.idle_watcher_create()
            raises(Fault, lambda watchers=watchers: run(h, *watchers))
    h.event_subscribe("fault")
    h.event_send("fault")
    watching = h.msg_watcher_create(fail, FLUX_MSGTYPE_EVENT, "fault")
    raises(Fault, lambda: run(h, watching))
    h.event_unsubscribe("fault")
    h.rpc("kvs.ping", {}).then(fail)
    raises(Fault, lambda: run(h))
    raises(Fault, FutureExt(fail, flux_handle=h).get)
    assert run(h, later(h, 0.0, h.reactor_stop)) >= 0, "it may run again"


# -- the key-value store -----------------------------------------------------------------------------------


def fact_values_of_the_kvs(h):
    txn = flux.kvs.KVSTxn(h, "facts")
    txn.put("a", {"x": [1, "é"]})
    txn.put("raw", "no JSON", raw=True)
    txn.put("bytes", b"\xff\xfe")
    txn.put("empty", "", raw=True)
    txn.mkdir("dir")
    txn.commit()
    get = flux.kvs.get
    assert get(h, "facts.a") == {"x": [1, "é"]}
    assert get(h, "facts.raw") == "no JSON" and get(h, "facts.bytes") == b"\xff\xfe"
    assert get(h, "facts.empty") is None
    raises(FileNotFoundError, lambda: get(h, "facts.b"), errno.ENOENT)
    raises(IsADirectoryError, lambda: flux.kvs.get_key_direct(h, "facts"), errno.EISDIR)
    raises(FileNotFoundError, lambda: get(h, "facts.a.below"), errno.ENOENT)
    raises(OSError, lambda: get(h, ""), errno.EINVAL)
    raises(OSError, lambda: get(h, None), errno.EINVAL)
    raises(InvalidArguments, lambda: get(h, 3))
    raises(OSError, lambda: flux.kvs.put(h, "", 1), errno.EINVAL)
    flux.kvs.put_unlink(h, "facts")
    flux.kvs.commit(h, flux.constants.FLUX_KVS_TXN_COMPACT)
    raises(FileNotFoundError, lambda: get(h, "facts.a"), errno.ENOENT)


def fact_directories_of_the_kvs(h):
    root = flux.kvs.get_dir(h)
    root.mkdir("facts", {"c": 1, "a.x": 2, "b": 3})
    found = root["facts"]
    assert list(found) == ["a", "b", "c"] and len(found) == 3
    assert found.list_all() == (["b", "c"], ["a"])
    assert found.key_at("a") == "facts.a" and root.key_at("facts") == "facts"
    assert found["a"]["x"] == 2 and found["a.x"] == 2 and found.exists("b")
    raises(KeyError, lambda: found["nosuch"])
    found["a"]["y"] = 4
    del found["b"]
    found.commit()
    assert list(found) == ["a", "b", "c"], "as it was when it was looked up"
    walked = flux.kvs.walk("facts", True, flux_handle=h)
    found = [(path, list(directories), list(keys)) for path, directories, keys in walked]
    assert found == [("", ["a"], ["c"]), ("a", [], ["x", "y"])]
    raises(FileNotFoundError, lambda: flux.kvs.get_dir(h, "facts.b"), errno.ENOENT)
    raises(NotADirectoryError, lambda: flux.kvs.get_dir(h, "facts.c"), errno.ENOTDIR)
    raises(FileNotFoundError, lambda: flux.kvs.get_dir(h, "facts.c.d"), errno.ENOENT)
    flux.kvs.put_unlink(h, "facts")
    flux.kvs.commit(h)
    assert not flux.kvs.isdir(h, "facts")


# -- references --------------------------------------------------------------------------------------------


def fact_thousands_of_requests_leave_nothing(h):
    def ask(count):
        for _ in range(count // 2):
            h.rpc("kvs.ping", {}).get()
        left = [count // 2]

        def answered(future):
            future.get()
            left[0] -= 1
            if left[0]:
                h.rpc("kvs.ping", {}).then(answered)
            else:
                h.reactor_stop()

        h.rpc("kvs.ping", {}).then(answered)
        h.reactor_run()
        gc.collect()
        return len(gc.get_objects())

    ask(200)
    before = ask(200)
    assert ask(2000) - before < 100


BLOCKED = """
from flux.brokermod import BrokerModule, request_handler

class Blocked(BrokerModule):
    @request_handler("block")
    def block(self, msg):
        self.handle.respond(msg, self.handle.rpc("slow.answer", {}).get())
"""


def fact_a_module_that_waits_for_an_answer_ends_after_it(h):
    """It is blocked in get() when it is removed."""
    asked, events = [], []

    def on_request(h, watcher, msg, args):
        asked.append(msg)
        h.reactor_stop()

    h.service_register("slow").get()
    watcher = h.msg_watcher_create(on_request, FLUX_MSGTYPE_REQUEST, "slow.answer")
    watcher.start()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "blocked.py")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(BLOCKED)
        h.rpc("module.load", {"path": path, "args": []}).get()
    blocked = h.rpc("blocked.block", {})
    run(h)
    removed = h.rpc("module.remove", {"name": "blocked"})
    blocked.then(lambda f: events.append(f.get()))
    removed.then(lambda f: (events.append(f.get()), h.reactor_stop()))
    run(h, later(h, 0.3, lambda: (events.append("waited"), h.respond(asked[0], {"late": True}))))
    assert events == ["waited", {"late": True}, None], events
    watcher.destroy()
    h.service_unregister("slow").get()


def fact_a_handle_in_another_thread(h):
    if os.environ.get("FLUX_URI") is None:
        return  # inside an instance, whose thread is the only one
    mine, found = flux.Flux(), []

    def ask():
        own = flux.Flux()
        for handle in (mine, own):
            found.append(handle.rpc("kvs.ping", {"n": 1}).get()["n"])
            handle.rpc("kvs.ping", {"n": 2}).then(lambda f: found.append(f.get()["n"]))
            handle.reactor_run()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [1, 2, 1, 2], found
    assert mine.rpc("kvs.ping", {"n": 3}).get()["n"] == 3


def fact_a_child_that_ends_leaves_the_connection(h):
    if h.attr_get("rank") != "0" or os.environ.get("FLUX_URI") is None:
        return  # inside an instance, which does not fork
    mine = flux.Flux()
    assert mine.rpc("kvs.ping", {"n": 1}).get()["n"] == 1
    child = os.fork()
    if child == 0:
        del mine
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert mine.rpc("kvs.ping", {"n": 2}).get()["n"] == 2


def fact_a_handle_that_nobody_has_is_closed(h):
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    if os.environ.get("FLUX_URI") is not None:
        other = flux.Flux()
        assert other.rpc("kvs.ping", {}).get() is not None
        del other
        gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def fact_close_and_reactor_depth(h):
    raises(RuntimeError, h.close)
    depth = h.reactor_running()
    with h.in_reactor():
        assert h.reactor_running()
    assert h.reactor_running() == depth


# -- ids ---------------------------------------------------------------------------------------------------


def fact_idsets(h):
    for text, meant in {
        "": "", "[]": "", "1-3,5-6,42": "1-3,5-6,42", "[1-3,7]": "1-3,7", "1,2": "1-2", "1,,2": "1-2", "1,": "1",
    }.items():  # fmt: skip
        assert str(IDset(text)) == meant, text
    for text in (
        "01", "3-1", "2,1", "1,1", "1-3,2", "-1", "1 ,2", "[1", "a", "1--2", "1-1", "0-4294967295", "2147483648",
    ):  # fmt: skip
        raises(ValueError, lambda text=text: IDset(text))
    ids = IDset([7, 1, 2]).set(20, 22).clear(21)
    assert str(ids) == "1-2,7,20,22" and ids.count() == 5
    assert (ids.first(), ids.last(), ids.next(2), ids.next(22)) == (1, 22, 7, 4294967294)
    results = (ids | "8", ids & "2-7", ids - "1")
    assert [str(result) for result in results] == ["1-2,7-8,20,22", "2,7", "2,7,20,22"]
    assert list(ids.copy()) == [1, 2, 7, 20, 22] and 7 in ids and 8 not in ids
    assert ids.encode(flags=0) == "1,2,7,20,22" and IDset("7").encode(flags=6) == "7"
    assert IDset("1-3").encode(flags=6) == "[1-3]"
    raises(OSError, lambda: ids.set(2147483648), errno.ERANGE)
    raises(OSError, lambda: ids.set(4294967295), errno.EINVAL)
    raises(OverflowError, lambda: ids.set(1 << 32))
    raises(ValueError, lambda: ids.set(3, 1))
    raises(TypeError, lambda: ids == "1")
    assert IDset("1-2") == IDset("1,2")


def fact_hostlists(h):
    for names in (
        "n9 n10", "n09 n10", "n009 n10", "n10 n09", "n1 n1 n2", "n3 n1 n2", "1 2 3", "a a b1", "n08 n09 n10 n11",
        "n99 n100 n101", "n1 n01 n2",
    ):  # fmt: skip
        hosts = names.split()
        assert list(Hostlist(Hostlist(hosts).encode())) == hosts
    assert str(Hostlist("n009,n10")) == "n[009,10]" and str(Hostlist("vm,vm")) == "vm,vm"
    assert list(Hostlist("n[001,2]")) == ["n001", "n2"]
    hosts = Hostlist("a[0-3]")
    assert (hosts[0], hosts[-1]) == ("a0", "a3")
    assert (str(hosts[1:3]), str(hosts[IDset("0,3")])) == ("a[1-2]", "a[0,3]")
    assert hosts.append("b", ["c[1-2]"]) == 3 and hosts.delete("b,zz") == 1 and hosts.count() == 6
    assert hosts.find("c2") == 5 and hosts.index("c1,a0") == [4, 0] and "zz" not in hosts
    assert str(Hostlist("n10,n9,a,n9").uniq()) == "a,n[9-10]"
    for text in "n[", "n]", "n[]", "n[1,,2]", "n[2-1]", "n[a]", "n[0-99999999]":
        raises(ValueError, lambda text=text: Hostlist(text))
    raises(FileNotFoundError, lambda: hosts.find("zz"), errno.ENOENT)
    raises(OSError, lambda: hosts.find("a[0-1]"), errno.EINVAL)
    raises(IndexError, lambda: hosts[99])


def fact_job_ids(h):
    id = JobID("ƒ2wErdR9")
    for text in ("f2wErdR9", id.dec, id.hex, id.dothex, id.kvs, id.f58, f" {id.f58plain}"):
        assert JobID(text) == id
    assert JobID("0.0.0.1") == 1
    for text in "", "x1", "f", "fOOO", "f1 ", "0x", "-1", "1.1", "18446744073709551616":
        raises(ValueError, lambda text=text: JobID(text))
    raises(OverflowError, lambda: JobID(1 << 64).f58)
    raises(OSError, lambda: id.encode("nosuch"), errno.EPROTO)


def fact_a_loop(h):
    """Without an instance, ``loop://`` returns requests to the handle that sends them, and stores
    aux values."""
    loop = flux.core.handle.Flux("loop://")
    got = []
    echo = lambda handle, watcher, msg, args: handle.respond(msg, {"topic": msg.topic})
    watcher = loop.msg_watcher_create(echo, FLUX_MSGTYPE_REQUEST, "echo.it")
    watcher.start()
    loop.rpc("echo.it", {}).then(lambda future: (got.append(future.get()), loop.reactor_stop()))
    loop.reactor_run()
    assert got == [{"topic": "echo.it"}]
    watcher.destroy()
    name = ffi.new("char[]", b"sched-mine")
    assert lib.flux_aux_set(loop.handle, b"flux::name", name, ffi.NULL) == 0
    found = lib.flux_aux_get(loop.handle, b"flux::name")
    assert ffi.string(ffi.cast("char *", found)) == b"sched-mine"


FACTS = {
    name[5:]: function for name, function in list(globals().items()) if name.startswith("fact_")
}


def main(names):
    handle = flux.Flux()
    assert isinstance(handle, flux.core.handle.Flux)
    for name in names or FACTS:
        try:
            FACTS[name](handle)
        except Exception:  # one failing fact must not hide the others
            print(f"--- {name}", file=sys.stderr)
            traceback.print_exc()
        else:
            print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
