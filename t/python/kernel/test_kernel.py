# SPDX-License-Identifier: LGPL-3.0-or-later
"""The kernel: messages between services, modules and clients, in one order; futures; watchers.

The behaviour of futures, timers and the reactor on any Flux is in bindings/facts.py.
"""

import errno
import os
import selectors
import signal
import threading
import time

import pytest
from in_process import refused

from flux_engine.kernel import message, watchers
from flux_engine.kernel.clock import RealClock, VirtualClock
from flux_engine.kernel.future import Future
from flux_engine.kernel.handle import RPC_NORESPONSE, RPC_STREAMING, Flux
from flux_engine.kernel.kernel import Kernel
from flux_engine.kernel.service import Service, request
from flux_engine.kernel.task import Task
from flux_engine.kernel.watchdog import Watchdog, place


class Context:
    def __init__(self, kernel):
        self.kernel = kernel


class Echo(Service):
    name = "echo"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.parked = []
        self.gone = []

    @request("say", guest=True, form=object)
    def say(self, msg):
        return {"said": msg.body}

    @request("fail")
    def fail(self, msg):
        raise OSError(errno.ENOENT, "no such thing")

    @request("bug")
    def bug(self, msg):
        raise KeyError("oops")

    @request("count", streaming=True)
    def count(self, msg):
        for number in range(msg.body["to"]):
            self.respond(msg, {"number": number})
        self.respond_error(msg, errno.ENODATA)

    @request("park", later=True)
    def park(self, msg):
        self.parked.append(msg)

    @request("sleep", later=True)
    def sleep(self, msg):
        self.timer(msg.body["seconds"], lambda: self.respond(msg, {"now": self.kernel.time}))

    @request("ask-other")
    def ask_other(self, msg):
        return self.rpc("other.say", {"via": "echo"}).body

    @request("disconnect")
    def disconnect(self, msg):
        self.gone.append((msg.sender.name, msg.noresponse, msg.payload_str))


class Other(Echo):
    name = "other"


class Log(Service):
    name = "log"

    def __init__(self, ctx):
        super().__init__(ctx)
        self.lines = []

    @request("append")
    def append(self, msg):
        self.lines.append(msg.body["text"])


@pytest.fixture
def kernel():
    kernel = Kernel(VirtualClock(1000.0))
    ctx = Context(kernel)
    kernel.log = Log(ctx)
    kernel.echo = Echo(ctx)
    kernel.other = Other(ctx)
    for service in (kernel.log, kernel.echo, kernel.other):
        service.start()
    return kernel


@pytest.fixture
def h(kernel):
    return Flux(Task(kernel, "test"))


def module(kernel, name, body):
    """A task whose body is ``body(h)``, started."""
    task = Task(kernel, name, lambda: body(Flux(task)))
    task.start()
    return task


def test_a_bug_in_a_handler_is_logged_and_answered(h, kernel):
    assert "KeyError: 'oops'" in refused(errno.EIO, h.rpc("echo.bug").get)
    assert h.rpc("echo.say", 1).get() == {"said": 1}
    assert any("oops" in line for line in kernel.log.lines)


def test_a_virtual_clock_never_goes_back():
    clock = VirtualClock(1000.0)
    times = [clock.advance_to(when) or clock.now() for when in (1005.0, 1001.0, 1005.0, 1006.0)]
    assert times == [1005.0, 1005.0, 1005.0, 1006.0]


def test_stream_by_callback_after_a_first_get(h):
    future = h.rpc("echo.count", {"to": 3}, flags=RPC_STREAMING)
    seen = [future.get()["number"]]
    future.reset()

    def more(future):
        try:
            seen.append(future.get()["number"])
        except OSError as exc:
            seen.append(exc.errno)
            h.reactor_stop()
        future.reset()

    future.then(more)
    h.reactor_run()
    assert seen == [0, 1, 2, errno.ENODATA]


@pytest.mark.parametrize("topic", ["echo.say", "echo.fail", "nosuch.method"])
def test_a_request_without_a_response_is_ready_at_once_and_gets_none(h, kernel, topic):
    delivered = []
    kernel.intercept = lambda endpoint, msg: delivered.append(msg.type)
    future = h.rpc(topic, flags=RPC_NORESPONSE)
    assert future.is_ready() and future.get() is None
    kernel.run_until_idle()
    assert message.RESPONSE not in delivered


def test_a_service_may_block_while_its_messages_wait(h):
    first = h.rpc("echo.ask-other")
    second = h.rpc("echo.say", 2)
    assert first.get() == {"said": {"via": "echo"}}
    assert second.get() == {"said": 2}


def test_messages_that_arrive_during_get_are_handled_in_order_afterwards(kernel, h):
    seen = []

    def body(handle):
        def take(handle, watcher, msg, args):
            seen.append(msg.payload)
            handle.respond(msg)

        handle.kernel.add_service("slow", handle.task)
        handle.msg_watcher_create(take, message.REQUEST, "slow.*").start()
        handle.rpc("echo.sleep", {"seconds": 5}).get()
        assert seen == []
        handle.reactor_run()

    module(kernel, "slow", body)
    kernel.run_until_idle()
    futures = [h.rpc("slow.x", {"n": number}) for number in range(4)]
    futures[-1].get()
    assert [payload["n"] for payload in seen] == [0, 1, 2, 3]
    assert kernel.now() == 1005.0


def test_newest_handler_wins_and_globs_match(kernel, h):
    kernel.add_service("me", h.task)
    seen = []

    def watcher(tag, glob):
        def take(handle, watcher, msg, args):
            seen.append((tag, args))
            handle.respond(msg)

        return h.msg_watcher_create(take, message.REQUEST, glob, args=tag.upper()).start()

    watcher("a", "me.go")
    newer = watcher("b", "me.g*")
    h.rpc("me.go").then(lambda future: h.reactor_stop())
    h.reactor_run()
    newer.stop()
    h.rpc("me.go").then(lambda future: h.reactor_stop())
    h.reactor_run()
    assert seen == [("b", "B"), ("a", "A")]


def test_disconnect_notice_to_every_service_ever_addressed(kernel):
    task = Task(kernel, "leaver")
    handle = Flux(task)
    handle.rpc("echo.say").get()
    handle.rpc("echo.park", flags=RPC_NORESPONSE)
    parked = Flux(Task(kernel, "other"))
    task.close()
    kernel.run_until_idle()
    assert kernel.echo.gone == [("leaver", True, None)]
    assert kernel.other.gone == []
    with pytest.raises(OSError):
        handle.rpc("echo.say")
    assert parked.rpc("echo.say").get()


def test_requests_to_a_module_that_leaves_fail(kernel, h):
    future = h.rpc("echo.park")
    kernel.run_until_idle()
    kernel.echo.close()
    assert refused(errno.EHOSTUNREACH, future.get) == "module disconnect"


def test_untagged_requests_are_not_kept_and_come_back_only_if_never_read(kernel, h):
    answers = []
    answered = lambda h, w, msg, args: answers.append(msg.errnum)
    h.msg_watcher_create(answered, message.RESPONSE, "echo.park").start()
    h.send_untagged("echo.park", {"n": 1})
    kernel.run_until_idle()
    assert len(kernel.echo.parked) == 1 and not kernel.echo.unanswered
    h.send_untagged("echo.park", {"n": 2})
    kernel.echo.close()
    h.timer_watcher_create(1, lambda *args: h.reactor_stop()).start()
    h.reactor_run()
    assert answers == [errno.ENOSYS]


def test_a_file_is_always_readable(h, tmp_path):
    (tmp_path / "file").write_bytes(b"hello")
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    seen = []

    def readable(h, watcher, revents, args):
        seen.append(os.read(fd, 4))
        if not seen[-1]:
            watcher.stop()

    watchers.FDWatcher(h.task, readable, fd, watchers.POLLIN).start()
    h.timer_watcher_create(0.01, lambda h, w, revents, args: h.reactor_stop()).start()
    h.reactor_run()
    os.close(fd)
    assert seen == [b"hell", b"o", b""]


def test_a_future_is_settled_by_whoever_has_it(h):
    seen = []
    future = Future(h)
    h.timer_watcher_create(1, lambda *args: future.settle("done")).start()
    future.then(lambda future: (seen.append(future.get()), h.reactor_stop()))
    h.reactor_run()
    assert seen == ["done"]
    other = Future(h)
    h.kernel.call_later(2, lambda: other.settle("later"))
    assert other.get() == "later" and h.kernel.now() == 1003.0


def test_the_reactor_may_run_once_or_not_wait(h):
    seen = []
    repeated = h.timer_watcher_create(1, lambda *args: seen.append(1), repeat=1).start()
    h.reactor_run(flags=1)
    assert seen == []
    h.reactor_run(flags=2)
    assert seen == [1]
    repeated.stop()


def test_a_wait_that_can_never_end_is_an_error_and_no_more(h):
    for _ in range(2):
        with pytest.raises(RuntimeError, match="nothing is left to wait for"):
            h.rpc("echo.park").get()
    assert h.rpc("echo.say", 1).get() == {"said": 1}


@pytest.mark.parametrize("seconds", [1e12, 1e99, float("inf")])
def test_timers_beyond_the_end_of_time(seconds):
    """Users name such times (begin-time:1e99): the loop does not wait for them, and survives."""
    kernel, fired = Kernel(VirtualClock()), []
    kernel.call_later(seconds, lambda: fired.append("never"))
    kernel.call_later(5.0, lambda: fired.append("soon"))
    start = kernel.now()
    kernel.run(until=lambda: bool(fired))
    with pytest.raises(RuntimeError, match="nothing is left to wait for"):
        kernel.run(until=lambda: len(fired) > 1)
    assert fired == ["soon"] and kernel.now() == start + 5.0
    kernel, (reader, writer) = Kernel(), os.pipe()
    kernel.call_later(seconds, lambda: fired.append("never"))
    kernel.add_fd(reader, selectors.EVENT_READ, lambda fd, mask: fired.append(os.read(fd, 1)))
    timer = threading.Timer(0.05, os.write, (writer, b"x"))
    timer.start()
    kernel.run(until=lambda: len(fired) > 1)
    timer.join()
    kernel.remove_fd(reader)
    os.close(reader)
    os.close(writer)
    assert fired == ["soon", b"x"]


def test_code_that_holds_the_loop_is_reported_and_a_loop_that_waits_is_not():
    kernel = Kernel(RealClock())
    reports, seen = [], []

    def report(frame, seconds):
        reports.append(place(frame, __file__))

    def sleepy():
        seen.append(len(reports))
        while not reports:
            time.sleep(0.01)

    with Watchdog(kernel.turn_under_way, report, signal.ITIMER_REAL, 0.05):
        kernel.call_later(0.3, sleepy)
        kernel.run(until=lambda: bool(reports))
    assert seen == [0] and reports[0].endswith("(sleepy)")
