# SPDX-License-Identifier: LGPL-3.0-or-later
"""What host.md 2 to 5 record of a handle, as functions of one: inside an instance and as its client.

Run as a program, it takes a handle from ``flux.Flux()`` and prints the names of the facts that hold.
"""

import errno
import json
import os
import signal
import traceback

import flux
from flux.constants import (
    FLUX_MSGTYPE_EVENT,
    FLUX_MSGTYPE_REQUEST,
    FLUX_NODEID_ANY,
    FLUX_RPC_NORESPONSE,
    FLUX_RPC_STREAMING,
)
from flux.future import FutureExt, WaitAllFuture


def raises(error, call, number=None, text=None):
    try:
        call()
    except error as exc:
        assert number is None or exc.errno == number, exc.errno
        assert text is None or exc.strerror == text, exc.strerror
        return exc
    raise AssertionError(f"{error.__name__} was not raised")


def run_reactor(h, *watchers):
    """Run the reactor until something stops it, at the latest after a while."""
    late = h.timer_watcher_create(20.0, lambda *a: h.reactor_stop_error()).start()
    for watcher in watchers:
        watcher.start()
    count = h.reactor_run()
    for watcher in (late, *watchers):
        watcher.destroy()
    return count


def later(h, seconds, function):
    return h.timer_watcher_create(seconds, lambda *a: function())


def fact_payloads(h):
    for payload in ({"a": 1}, '{"a": 1}', b'{"a": 1}'):
        rpc = h.rpc("kvs.ping", payload, FLUX_NODEID_ANY, 0)
        assert rpc.get()["a"] == json.loads(rpc.get_str())["a"] == 1
        assert rpc.get() == rpc.get() and rpc.get() is not rpc.get()
    assert h.rpc("kvs.stats-clear").get() is None and h.rpc("kvs.stats-clear").get_str() is None
    raises(TypeError, lambda: h.rpc("kvs.ping", {"a": object()}))
    raises(TypeError, lambda: h.rpc(3))
    raises(OSError, lambda: h.rpc(None), errno.EINVAL, "Topic must not be None/NULL")


def fact_unknown_targets(h):
    raises(
        OSError, h.rpc("nosuch.x").get, errno.ENOSYS, "No service matching nosuch.x is registered"
    )
    raises(OSError, h.rpc("kvs.nosuch").get, errno.ENOSYS, "Unknown service method 'kvs.nosuch'")
    raises(OSError, h.rpc("kvs.ping", nodeid=99).get, errno.EHOSTUNREACH, "No route to host")
    raises(FileNotFoundError, h.rpc("kvs.lookup", {"key": "nosuch"}).get, errno.ENOENT)


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


def fact_logging(h):
    raises(TypeError, lambda: h.log("err", "text"))
    h.log(6, "a line")
    while not any(entry["text"] == "a line" for entry in dmesg(h)):
        pass


def dmesg(h):
    rpc = h.rpc("log.dmesg", {}, flags=FLUX_RPC_STREAMING)
    while True:
        try:
            yield rpc.get()
        except OSError as exc:
            assert exc.errno == errno.ENODATA
            return
        rpc.reset()


def fact_futures(h):
    rpc = h.rpc("kvs.ping", {})
    assert rpc.get_flux() is h
    assert rpc.wait_for(5) is rpc and rpc.is_ready()
    assert rpc.error_string() is None
    failed = h.rpc("kvs.nosuch")
    raises(OSError, failed.get)
    raises(OSError, failed.get)
    assert failed.error_string() == "Unknown service method 'kvs.nosuch'"
    never = FutureExt(lambda f: None, flux_handle=h)
    raises(TimeoutError, lambda: never.wait_for(0.01), errno.ETIMEDOUT)
    none = h.rpc("kvs.ping", {}, flags=FLUX_RPC_NORESPONSE)
    assert none.is_ready()


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
    run_reactor(h)
    assert seen == [(1, (1,), {"key": "word"}), (2, (2,), {"key": "word"})]


def fact_callback_in_time(h):
    seen = []

    def overdue(future):
        seen.append(raises(TimeoutError, future.get).errno)
        h.reactor_stop()

    FutureExt(lambda f: None, flux_handle=h).then(overdue, timeout=0.01)
    run_reactor(h)
    assert seen == [errno.ETIMEDOUT]


def fact_futures_of_ones_own(h):
    made = FutureExt(lambda f, value: f.fulfill({"v": value}), 3, flux_handle=h)
    assert made.get() == {"v": 3}
    failing = FutureExt(lambda f: f.fulfill_error(errno.EPERM, "no"), flux_handle=h)
    raises(PermissionError, failing.get, errno.EPERM, "no")
    rpcs = [h.rpc("kvs.ping", {}) for _ in range(3)]
    WaitAllFuture(rpcs).get()
    assert all(rpc.is_ready() for rpc in rpcs)


def fact_streams(h):
    h.log(6, "one")
    h.log(6, "two")
    seen = []

    def entry(future):
        try:
            seen.append(future.get()["text"])
        except OSError as exc:
            seen.append(exc.errno)
            h.reactor_stop()
        future.reset()

    rpc = h.rpc("log.dmesg", {}, flags=FLUX_RPC_STREAMING)
    rpc.get()
    rpc.reset()
    rpc.then(entry)
    run_reactor(h)
    assert seen[-1] == errno.ENODATA and "two" in seen


def fact_requests_to_a_service_of_ones_own(h):
    h.service_register("facts").get()
    kept, answers = [], []

    def request(handle, watcher, msg, args):
        assert handle is h and args == "args"
        kept.append(msg)
        if msg.topic == "facts.later":
            # A message may be kept and answered when its handler has long returned.
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
        ("later", None),
        ("plain", {}),
        ("error", {"text": None}),
        ("error", {"text": "why"}),
        ("no", None),
    ):
        h.rpc(f"facts.{topic}", payload).then(done)
    run_reactor(h)
    assert watcher.stop() is None
    timer.destroy()
    h.service_unregister("facts").get()
    raises(
        OSError,
        h.rpc("facts.plain").get,
        errno.ENOSYS,
        "No service matching facts.plain is registered",
    )
    assert {"late": True} in answers and None in answers, answers
    assert (errno.EPERM, "why") in answers and (errno.EPERM, os.strerror(errno.EPERM)) in answers
    assert (errno.ENOSYS, "Unknown service method 'facts.no'") in answers
    msg = kept[0]
    assert (msg.type, msg.type_str, msg.topic) == (FLUX_MSGTYPE_REQUEST, "request", "facts.later")
    assert (msg.userid, msg.rolemask, msg.payload_str) == (os.getuid(), 5, None)
    raises(TypeError, lambda: msg.payload)
    assert kept[1].decode() == (1, "facts.plain", "{}")


def fact_service_names(h):
    raises(FileExistsError, h.service_register("kvs").get, errno.EEXIST)
    raises(
        FileNotFoundError,
        h.service_unregister("nosuch").get,
        errno.ENOENT,
        "No such file or directory",
    )
    assert h.service_register("once").get() is None
    raises(FileExistsError, h.service_register("once").get)
    h.service_unregister("once").get()


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
    run_reactor(h, watcher)
    assert seen == [("facts.a", {"n": 1}), ("facts.last", None)]
    h.event_unsubscribe("facts")


def fact_timers(h):
    seen = []
    watchers = [
        later(h, after, lambda after=after: seen.append(after)) for after in (0.03, 0.01, 0.02)
    ]
    repeated = h.timer_watcher_create(0.005, lambda *a: seen.append("r"), repeat=0.005)
    run_reactor(h, *watchers, repeated, later(h, 0.1, h.reactor_stop))
    assert [x for x in seen if x != "r"] == [0.01, 0.02, 0.03]
    assert seen.count("r") >= 5
    assert watchers[0].start() is watchers[0] and watchers[0].stop() is watchers[0]


def fact_the_loops_clock(h):
    reactor = h.get_reactor()
    times = []
    run_reactor(h, later(h, 0.02, lambda: (times.append(h.reactor_now(reactor)), h.reactor_stop())))
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

    run_reactor(
        h,
        h.idle_watcher_create(note("idle")),
        h.prepare_watcher_create(note("prepare")),
        h.check_watcher_create(note("check")),
    )
    first = order.index("prepare")  # the loop may be in the middle of a turn
    assert order[first : first + 3] == ["prepare", "check", "idle"], order
    turns = []
    # An idle watcher without callback keeps the loop turning; the virtual clock stands still meanwhile.
    counting = h.prepare_watcher_create(
        lambda *a: (turns.append(1), len(turns) == 50 and h.reactor_stop())
    )
    run_reactor(h, h.idle_watcher_create(), counting)
    assert len(turns) == 50


def fact_descriptors(h):
    reader, writer = os.pipe()
    seen = []

    def readable(handle, watcher, fd, revents, args):
        seen.append((handle is h, os.read(fd, 10), revents & 1, args))
        h.reactor_stop()

    os.write(writer, b"x")
    with h.fd_watcher_create(reader, readable, args="a"):
        run_reactor(h)
    assert seen == [(True, b"x", 1, "a")]
    os.close(reader)
    os.close(writer)


def fact_signals(h):
    seen = []

    def caught(handle, watcher, signum, args):
        seen.append(signum)
        h.reactor_stop()

    watcher = h.signal_watcher_create(signal.SIGUSR1, caught)
    run_reactor(h, watcher, later(h, 0.01, lambda: os.kill(os.getpid(), signal.SIGUSR1)))
    assert seen == [signal.SIGUSR1]


def fact_what_stops_the_reactor(h):
    forgotten = h.timer_watcher_create(60.0, lambda *a: None).start()
    del forgotten  # a started watcher nobody refers to still counts, and still fires
    stop = later(h, 0.0, h.reactor_stop)
    assert run_reactor(h, stop) >= 1
    assert run_reactor(h, later(h, 0.0, h.reactor_stop_error)) == -1

    def fail():
        raise KeyError("left the callback")

    raises(KeyError, lambda: run_reactor(h, later(h, 0.0, fail)))
    raises(KeyError, lambda: (h.rpc("kvs.ping", {}).then(lambda f: fail()), run_reactor(h)))
    assert run_reactor(h, later(h, 0.0, h.reactor_stop)) >= 1, "it may run again"


def fact_close(h):
    raises(RuntimeError, h.close)


FACTS = {
    name[5:]: function for name, function in list(globals().items()) if name.startswith("fact_")
}


def main():
    handle = flux.Flux()
    assert isinstance(handle, flux.core.handle.Flux)
    for name, function in FACTS.items():
        try:
            function(handle)
        except Exception:  # one fact that does not hold must not hide the others
            traceback.print_exc()
        else:
            print(name, flush=True)


if __name__ == "__main__":
    main()
