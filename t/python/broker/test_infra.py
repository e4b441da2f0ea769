# SPDX-License-Identifier: LGPL-3.0-or-later
"""Log, attributes, events, configuration, ranks: the broker's own services, message by message."""

import errno
import gc
import os

import pytest
from broker_help import GOOD, Broker
from greenlet import greenlet
from in_process import Stream, refused

OWNER_ONLY = "Request requires owner credentials"


def test_dmesg_ends_without_follow_and_forgets_clients_that_left(broker):
    broker.call("log.clear")
    stream = broker.handle.rpc("log.dmesg", {}, flags=2)
    refused(errno.ENODATA, stream.get)
    assert broker.fails("log.dmesg", {})[0] == errno.EPROTO
    other = broker.client()
    other.rpc("log.dmesg", {"follow": True}, flags=2)
    broker.run()
    other.task.close()
    broker.run()
    broker.handle.log(6, "nobody listens")
    broker.run()
    assert not broker.infra[0]._followers


def test_attributes(broker):
    for name, *error in (
        ("foo", errno.ENOENT, "unknown attribute"),
        ("log-stderr-level", errno.EINVAL, "invalid level"),
        ("rank", errno.EINVAL, "attribute may not be updated"),
        # the broker reads these once, when it starts
        ("log-level", errno.EINVAL, "attribute may not be updated"),
        ("log-forward-level", errno.EINVAL, "attribute may not be updated"),
    ):
        assert broker.fails("attr.set", {"name": name, "value": "x"}) == tuple(error)


def test_guests(broker):
    guest = broker.client(userid=1234, rolemask=2)
    assert guest.rpc("attr.get", {"name": "size"}).get()["value"] == "1"
    for topic in (
        "attr.set", "module.load", "module.remove", "config.load", "log.dmesg", "service.add", "overlay.join",
    ):  # fmt: skip
        with pytest.raises(PermissionError, match=OWNER_ONLY):
            guest.rpc(topic, {}, flags=2 if topic == "log.dmesg" else 0).get()


def test_events_reach_subscribers_once_in_order_of_publishing(broker):
    other = broker.client("other")
    seen = []
    for h in (broker.handle, other):
        h.event_subscribe("foo")
        h.event_subscribe("foo.b")
        h.task.post = lambda msg, h=h: seen.append((h.task.name, msg.topic, msg.payload_str))
    broker.call("event.publish", {"topic": "foo.bar", "payload": {"a": 1}})
    broker.call("event.publish", {"topic": "other", "payload": {}})
    broker.call("event.publish", {"topic": "foo"})
    assert seen == [
        ("client", "foo.bar", '{"a":1}'), ("other", "foo.bar", '{"a":1}'), ("client", "foo", None), ("other", "foo", None),
    ]  # fmt: skip
    other.task.close()
    broker.handle.rpc("event.unsubscribe", {"topic": "foo"}).get()
    del seen[:]
    broker.call("event.publish", {"topic": "foo.c"})
    assert seen == []
    broker.call("event.publish", {"topic": "foo", "payload": "raw"})
    assert broker.fails("event.unsubscribe", {"topic": "nosuch"})[0] == errno.ENOENT


PICKY = """
    from flux.brokermod import BrokerModule, request_handler
    class M(BrokerModule):
        @request_handler("config-reload")
        def reload(self, msg):
            if msg.payload.get("bad"):
                self.handle.respond_error(msg, 22, "bad is not good")
            else:
                self.seen = msg.payload
                self.handle.respond(msg, {})
        @request_handler("seen")
        def seen_(self, msg):
            self.handle.respond(msg, self.seen)
"""


def test_configuration_reaches_every_module_or_is_taken_back(broker):
    broker.load("first.py", PICKY.replace("bad", "never"))
    broker.load("second.py", PICKY)
    broker.call("config.load", {"x": {"y": 1}})
    assert broker.call("config.get") == {"x": {"y": 1}}
    assert broker.call("first.seen") == broker.call("second.seen") == {"x": {"y": 1}}
    # Two loads at a time: one after the other.
    loads = [broker.handle.rpc("config.load", config) for config in ({"bad": 1}, {"z": 1})]
    assert refused(22, loads[0].get) == "error updating second: bad is not good"
    loads[1].get()
    for topic in ("config.get", "first.seen", "second.seen"):
        assert broker.call(topic) == {"z": 1}
    broker.fails("config.load", {"bad": 1})
    assert broker.call("first.seen") == {"z": 1}
    assert broker.fails("config.load", [3])[0] == errno.EPROTO


def test_config_reload_reads_the_files_again(broker):
    path = broker.directory / "c.toml"
    path.write_text("[a]\nb = 1\n")
    broker.ctx.attrs.define("config.path", path)
    broker.call("config.reload")
    assert broker.call("config.get") == {"a": {"b": 1}}
    path.write_text("junk=")
    number, text = broker.fails("config.reload")
    assert number == errno.EINVAL and text.startswith(f"{path}: TOML parse error: ")
    assert broker.call("config.get") == {"a": {"b": 1}}


def test_ranks_come_and_go(tmp_path):
    broker = Broker(tmp_path, size=4)
    stream = Stream(broker.handle, "overlay.monitor")
    assert stream.take() == [{"online": "0-3"}]
    broker.call("overlay.disconnect", {"rank": 2})
    assert stream.take() == [{"offline": "2"}]
    broker.call("overlay.join", {"ranks": "1-2"})
    assert stream.take() == [{"online": "2"}]
    for rank in (0, 4, -1, "x"):
        assert broker.fails("overlay.disconnect", {"rank": rank})[0] == errno.EINVAL
    assert broker.fails("overlay.join", {"ranks": "4"})[0] == errno.EINVAL
    broker.stop()


def test_nothing_is_left_when_an_instance_stops(tmp_path):
    def count():
        gc.collect()
        alive = [one for one in gc.get_objects() if isinstance(one, greenlet) and not one.dead]
        return len(os.listdir("/proc/self/fd")), len(alive)

    before = count()
    for _ in range(3):
        broker = Broker(tmp_path, services=("kvs", "resource"))
        broker.load("good.py", GOOD)
        broker.stop()
        broker.stop()
        del broker
    assert count() == before


@pytest.mark.parametrize(
    "table, text",
    [
        ({"ingest": 3}, "job-ingest: configuration: ingest must be an object"),
        ({"ingest": {"validator": {"plugins": 3}}}, "job-ingest: configuration: ingest.validator.plugins must be an array"),
        ({"job-manager": {"housekeeping": {"foo": 1}}}, "job-manager: configuration: job-manager.housekeeping.command is missing"),
        ({"exec": 3}, "job-exec: configuration: exec must be an object"),
        ({"exec": {"kill-timeout": "x"}}, "job-exec: configuration: exec.kill-timeout: invalid Flux standard duration"),
        ({"resource": {"exclude": 3}}, "resource: configuration: resource.exclude must be a string"),
        ({"access": []}, "job-list: configuration: access must be an object"),
        ({"access": {"private-mode": 3}}, "job-list: configuration: access.private-mode must be true or false"),
        ({"access": {"roles": {"x": {}}}}, "job-list: configuration: access.roles: unknown key 'x'"),
    ],
)  # fmt: skip
def test_tables_that_are_refused(tmp_path, table, text):
    services = ("kvs", "resource", "job-manager", "job-ingest", "job-exec", "job-list")
    broker = Broker(tmp_path, services=services)
    found = broker.fails("config.load", table)
    broker.stop()
    assert found == (errno.EINVAL, f"error updating {text}")
