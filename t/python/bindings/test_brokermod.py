# SPDX-License-Identifier: LGPL-3.0-or-later
"""flux.brokermod: modules, their handlers, log and entry points (host.md 6 and 8)."""

import errno
import textwrap
import types

import bindings_instance
import pytest

from flux.brokermod import (
    BrokerModule,
    event_handler,
    request_handler,
)
from flux_engine.kernel import message

GOOD = """
    from flux.brokermod import BrokerModule, request_handler, event_handler

    class Base(BrokerModule):
        @request_handler("same")
        def base_same(self, msg):
            self.handle.respond(msg, {"by": "base"})

        @request_handler("over")
        def over(self, msg):
            self.handle.respond(msg, {"by": "base"})

    class Good(Base):
        def __init__(self, h, *args):
            super().__init__(h, *args)
            self.seen = []

        @request_handler("hello")
        def hello(self, msg):
            self.handle.respond(msg, {"name": self.name, "args": list(self.args)})

        @request_handler("other.topic", prefix=False)
        def absolute(self, msg):
            self.handle.respond(msg, {})

        @request_handler("open", allow_guest=True)
        def open(self, msg):
            self.handle.respond(msg, {"userid": msg.userid, "rolemask": msg.rolemask})

        @event_handler("tick")
        def tick(self, msg):
            self.seen.append(msg.payload)

        @event_handler("news", prefix=False)
        def news(self, msg):
            self.seen.append(msg.topic)

        @request_handler("seen")
        def tell(self, msg):
            self.handle.respond(msg, {"seen": self.seen})

        @request_handler("same")
        def own_same(self, msg):
            self.handle.respond(msg, {"by": "subclass"})

        def over(self, msg):
            self.handle.respond(msg, {"by": "subclass"})

        @request_handler("dbg")
        def dbg(self, msg):
            both = [self.debug_test(1), self.debug_test(1, clear=True), self.debug_test(1), self.debug_test(4)]
            self.handle.respond(msg, {"bits": both})

        @request_handler("stopok")
        def stopok(self, msg):
            self.stop()

        @request_handler("stoperr")
        def stoperr(self, msg):
            self.stop_error()

        @request_handler("crash")
        def crash(self, msg):
            raise RuntimeError("handler crash")

        @request_handler("sysexit")
        def sysexit(self, msg):
            raise SystemExit(5)

        @request_handler("register")
        def register(self, msg):
            self.handle.service_register(msg.payload["service"]).get()
            self.handle.respond(msg)

        @request_handler("unregister")
        def unregister(self, msg):
            try:
                self.handle.service_unregister(msg.payload["service"]).get()
            except OSError as exc:
                self.handle.respond_error(msg, exc.errno, exc.strerror)
            else:
                self.handle.respond(msg)

        @request_handler("log")
        def write(self, msg):
            self.log.level = msg.payload["level"]
            self.log.debug("d")
            self.log.info("i")
            self.log.error("e")
            self.handle.respond(msg, {"level": self.log.level, "name": self.log.level_name})

    def mod_main(h, *args):
        Good(h, *args).run()
"""


@pytest.fixture
def instance():
    instance = bindings_instance.make()
    yield instance
    instance.stop()


@pytest.fixture
def load(instance, tmp_path):
    def load(text, *args, name="good"):
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(text))
        instance.load_module(path, *args)
        return instance.handle

    return load


def loaded(h):
    return [mod["name"] for mod in h.rpc("module.list").get()["mods"]]


def failure(call):
    with pytest.raises(OSError) as info:
        call()
    return info.value.errno, info.value.strerror


def test_name_args_and_topics(load):
    h = load(GOOD, "a", "b=1")
    assert h.rpc("good.hello").get() == {"name": "good", "args": ["a", "b=1"]}
    assert failure(h.rpc("good.nosuch").get) == (
        errno.ENOSYS,
        "Unknown service method 'good.nosuch'",
    )


def test_topic_without_prefix(load):
    h = load(GOOD)
    h.rpc("good.register", {"service": "other"}).get()
    assert h.rpc("other.topic").get() == {}


def test_service_names(load):
    h = load(GOOD)
    # The error of service_register leaves the handler, and with it ends the module.
    for taken in ("good", "log"):
        if "good" not in loaded(h):
            load(GOOD)
        assert failure(h.rpc("good.register", {"service": taken}).get)[0] == errno.EHOSTUNREACH
    load(GOOD)
    assert failure(h.rpc("good.unregister", {"service": "nosuch"}).get) == (
        errno.ENOENT,
        "No such file or directory",
    )
    h.rpc("good.register", {"service": "mine"}).get()
    h.rpc("good.unregister", {"service": "mine"}).get()
    assert failure(h.rpc("mine.x").get) == (
        errno.ENOSYS,
        "No service matching mine.x is registered",
    )


def test_text_when_a_service_is_taken(instance):
    h = instance.handle
    h.service_register("taken").get()
    assert failure(h.service_register("taken").get) == (
        errno.EEXIST,
        "File exists",
    )


def test_which_handler_of_a_topic_answers(load):
    h = load(GOOD)
    # Registered is the name: an override is called, but of two names the base class's is newest.
    assert h.rpc("good.over").get() == {"by": "subclass"}
    assert h.rpc("good.same").get() == {"by": "base"}


def test_guests(load, instance):
    load(GOOD)
    guest = bindings_instance.another_handle(instance, userid=1234, rolemask=message.ROLE_USER)
    assert guest.rpc("good.open").get() == {"userid": 1234, "rolemask": 2}
    assert failure(guest.rpc("good.hello").get) == (
        errno.EPERM,
        "Request requires owner credentials",
    )
    assert guest.rpc("good.ping", {"seq": 1}).get()["seq"] == 1


def test_events(load, instance):
    h = load(GOOD)
    for topic, payload in (
        ("good.tick", {"n": 1}),
        ("news.today", {}),
        ("news", {}),
        ("unrelated", {}),
    ):
        h.rpc("event.publish", {"topic": topic, "payload": payload}).get()
    assert h.rpc("good.seen").get() == {"seen": [{"n": 1}, "news"]}


def test_debug_word(load):
    h = load(GOOD)
    assert h.rpc("good.debug", {"op": "setbit", "flags": 5}).get() == {"flags": 5}
    assert h.rpc("good.dbg").get() == {"bits": [True, True, False, True]}
    assert h.rpc("good.debug", {"op": "setbit", "flags": 0}).get() == {"flags": 4}


def test_handlers_that_need_no_code(load):
    h = load(GOOD)
    assert h.rpc("good.stats-clear").get() is None
    assert h.rpc("good.config-reload", {}).get() is None
    assert sorted(h.rpc("good.stats-get").get()) == ["rx", "tx"]
    h.rpc("good.shutdown", flags=1)
    h.kernel.run_until_idle()
    assert "good" not in loaded(h)


@pytest.mark.parametrize("how", ["stopok", "stoperr", "crash"])
def test_ends_of_a_module(load, instance, capsys, how):
    """What a request was waiting for then fails; only a normal stop is no failure."""
    h = load(GOOD)
    assert failure(h.rpc(f"good.{how}").get) == (errno.EHOSTUNREACH, "module disconnect")
    assert "good" not in loaded(h)
    failed = [
        entry.text
        for entry in instance.ctx.ring.entries()
        if "good" in entry.text and entry.level <= 3
    ]
    wanted = (
        [] if how == "stopok" else ["good: Connection reset by peer", "good module runtime failure"]
    )
    assert failed == wanted
    assert ("RuntimeError: handler crash" in capsys.readouterr().err) == (how == "crash")


def test_system_exit_in_a_handler_is_swallowed_and_nobody_answered(load, instance):
    h = load(GOOD)
    rpc = h.rpc("good.sysexit")
    assert h.rpc("good.hello").get()["name"] == "good"
    assert not rpc.is_ready()


def test_log_levels(load, instance):
    h = load(GOOD)
    assert h.rpc("good.log", {"level": "Info"}).get() == {"level": 6, "name": "info"}
    assert h.rpc("good.log", {"level": 3}).get() == {"level": 3, "name": "err"}
    texts = [
        (entry.level, entry.text) for entry in instance.ctx.ring.entries() if entry.name == "good"
    ]
    assert texts == [(6, "i"), (3, "e"), (3, "e")]


def test_set_running_lets_the_load_return(load):
    h = load("""
        from flux.brokermod import BrokerModule
        from flux.future import FutureExt

        class Slow(BrokerModule):
            def run(self):
                self.set_running()
                self.set_running()
                FutureExt(lambda f: None, flux_handle=self.handle).wait_for(5)
        """, name="slow")  # fmt: skip
    assert "slow" in loaded(h)


def test_flux_inside_a_module_is_its_own_handle(load):
    h = load("""
        import flux
        from flux.brokermod import BrokerModule, request_handler

        class Own(BrokerModule):
            @request_handler("same")
            def same(self, msg):
                h = flux.Flux()
                both = [h.handle is self.handle.handle, isinstance(h, flux.core.handle.Flux)]
                self.handle.respond(msg, {"same": both, "rank": h.get_rank()})
        """, name="own")  # fmt: skip
    assert h.rpc("own.same").get() == {"same": [True, True], "rank": 0}


def failing(text):
    return f"from flux.brokermod import BrokerModule\ndef mod_main(h, *args):\n    {text}\n"


LOADER = "loader (module-python-exec) exited with exit code"

FAILURES = {
    "value": (failing("raise ValueError('bad argument: %s' % (args,))"), errno.EINVAL, "Invalid argument",
              "f.py: bad argument: ('q=1',)\n"),
    "oserror": (failing("import errno; raise OSError(errno.ENOTTY, 'some text')"), errno.ENOTTY,
                "Inappropriate ioctl for device", ""),
    "oserror without errno": (failing("raise OSError('just a message')"), errno.ECONNRESET,
                              "Connection reset by peer", None),
    "other": (failing("raise RuntimeError('init went wrong')"), errno.ECONNRESET, "Connection reset by peer",
              "RuntimeError: init went wrong"),
    "import": ("import nosuchmodule\n", None, f"{LOADER} 1", "No module named 'nosuchmodule'"),
    "syntax": ("def mod_main(:\n", None, f"{LOADER} 1", "SyntaxError"),
    "no entry": ("x = 1\n", None, f"{LOADER} 1", "f.py: no mod_main() or BrokerModule subclass found\n"),
    "two": ("from flux.brokermod import BrokerModule\nclass A(BrokerModule): pass\nclass B(BrokerModule): pass\n", None,
            f"{LOADER} 1", "f.py: multiple BrokerModule subclasses found (A, B); define mod_main()\n"),
    "exit": (failing("import sys; sys.exit(3)"), None, f"{LOADER} 3", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_entry_points_that_fail(load, instance, capfd, case):
    text, number, strerror, stderr = FAILURES[case]
    with pytest.raises(OSError) as info:
        load(text, "q=1", name="f")
    assert info.value.strerror == strerror
    assert number in (None, info.value.errno)
    printed = capfd.readouterr().err
    assert stderr is None or (
        stderr in printed if stderr else "f.py" not in printed and "Traceback" not in printed
    )
    assert f"f: {strerror}" in [entry.text for entry in instance.ctx.ring.entries()]
    assert "f" not in loaded(instance.handle)


def test_entry_point_that_returns_at_once(load):
    h = load("def mod_main(h, *args):\n    return\n", name="ret0")
    assert "ret0" not in loaded(h)


# -- resolve_entry_point -------------------------------------------------------


def module_of(**names):
    module = types.ModuleType("m")
    vars(module).update(names)
    return module


class A(BrokerModule):
    pass


class B(BrokerModule):
    pass


def test_decorators_leave_the_method_callable(instance):
    class M(BrokerModule):
        calls = []

        @request_handler("twice")
        @event_handler("twice")
        def both(self, msg):
            self.calls.append(msg)

    M(instance.handle).both("direct")
    assert M.calls == ["direct"]


def test_a_module_that_waits_for_what_never_comes_is_ended(instance, tmp_path):
    """What ends it passes through the bindings: no callback or exception handler of theirs keeps it."""
    path = tmp_path / "stuck.py"
    path.write_text(
        "from flux.brokermod import BrokerModule\n"
        "import flux.future\n"
        "class Stuck(BrokerModule):\n"
        "    def run(self):\n"
        "        self.set_running()\n"
        "        timer = self.handle.timer_watcher_create(0.0, self.wait).start()\n"
        "        super().run()\n"
        "    def wait(self, *args):\n"
        "        self.handle.rpc('stuck.never').get()\n"
    )
    instance.load_module(path)
    instance.kernel.run_until_idle()
    task = instance.modules.table["stuck"].task
    instance.kill_module("stuck")
    assert task.greenlet.dead and "stuck" not in instance.modules.table
