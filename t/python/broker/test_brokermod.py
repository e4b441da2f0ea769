# SPDX-License-Identifier: LGPL-3.0-or-later
"""flux.brokermod in the embedded instance: topics, guests, events, the log and debug bits of a module (host.md 6 and 8)."""

import errno

import pytest
from in_process import refused

OWN = """
    import flux
    from flux.brokermod import BrokerModule, event_handler, request_handler

    class Own(BrokerModule):
        def __init__(self, h, *args):
            super().__init__(h, *args)
            self.seen = []

        @request_handler("other.topic", prefix=False)
        def absolute(self, msg):
            self.handle.respond(msg, {})

        @request_handler("register")
        def register(self, msg):
            self.handle.service_register(msg.payload["service"]).get()
            self.handle.respond(msg)

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

        @request_handler("dbg")
        def dbg(self, msg):
            bits = [self.debug_test(1), self.debug_test(1, clear=True), self.debug_test(1), self.debug_test(4)]
            self.handle.respond(msg, {"bits": bits})

        @request_handler("sysexit")
        def sysexit(self, msg):
            raise SystemExit(5)

        @request_handler("log")
        def write(self, msg):
            self.log.level = msg.payload["level"]
            self.log.debug("d")
            self.log.info("i")
            self.log.error("e")
            self.handle.respond(msg, {"level": self.log.level, "name": self.log.level_name})

        @request_handler("handle")
        def handles(self, msg):
            h = flux.Flux()
            same = [h.handle is self.handle.handle, isinstance(h, flux.core.handle.Flux)]
            self.handle.respond(msg, {"same": same, "rank": h.get_rank()})
"""


@pytest.fixture
def own(broker):
    """A broker with the module."""
    broker.load("own.py", OWN)
    return broker


def test_a_topic_without_prefix_and_a_handler_that_fails(own):
    own.call("own.register", {"service": "other"})
    assert own.call("other.topic") == {}
    # Its error ends the module.
    assert own.fails("own.register", {"service": "log"})[0] == errno.EHOSTUNREACH
    assert "own" not in own.loaded()


def test_guests_where_the_handler_lets_them_in(own):
    guest = own.client(userid=1234, rolemask=2)
    assert guest.rpc("own.open").get() == {"userid": 1234, "rolemask": 2}
    assert "Request requires owner credentials" in refused(errno.EPERM, guest.rpc("own.seen").get)


def test_events(own):
    for topic, n in (("own.tick", 1), ("news.today", 2), ("news", 3), ("unrelated", 4)):
        own.call("event.publish", {"topic": topic, "payload": {"n": n}})
    assert own.call("own.seen") == {"seen": [{"n": 1}, "news"]}


def test_debug_word_and_log_levels(own):
    assert own.call("own.debug", {"op": "setbit", "flags": 5}) == {"flags": 5}
    assert own.call("own.dbg") == {"bits": [True, True, False, True]}
    assert own.call("own.debug", {"op": "setbit", "flags": 0}) == {"flags": 4}
    assert own.call("own.log", {"level": "Info"}) == {"level": 6, "name": "info"}
    assert own.call("own.log", {"level": 3}) == {"level": 3, "name": "err"}
    texts = [line for line in own.log() if line.startswith("own.")]
    assert texts == ["own.info: i", "own.err: e", "own.err: e"]


def test_system_exit_in_a_handler_is_swallowed_without_an_answer(own):
    rpc = own.handle.rpc("own.sysexit")
    assert own.call("own.seen") == {"seen": []}
    assert not rpc.is_ready()


def test_flux_inside_a_module_is_its_own_handle(own):
    assert own.call("own.handle") == {"same": [True, True], "rank": 0}


def test_a_module_that_waits_in_vain_is_ended(broker):
    """The exception that ends it passes all callbacks and exception handlers of the bindings."""
    text = """
        from flux.brokermod import BrokerModule
        class Stuck(BrokerModule):
            def run(self):
                self.set_running()
                timer = self.handle.timer_watcher_create(0.0, self.wait).start()
                super().run()
            def wait(self, *args):
                self.handle.rpc("stuck.never").get()
    """
    broker.load("stuck.py", text)
    broker.run()
    task = broker.modules.table["stuck"].task
    broker.modules.kill("stuck")
    assert task.greenlet.dead and "stuck" not in broker.modules.table
