# SPDX-License-Identifier: LGPL-3.0-or-later
"""The socket: well-formed and malformed clients, and clients that leave."""

import errno
import os
import socket

import pytest
from in_process import refused

from flux_embedded.broker.server import SocketServer
from flux_engine.kernel import message
from flux_engine.kernel.link import Unpacker, pack
from flux_engine.kernel.message import Message
from flux_engine.kernel.service import Service, request


class Client:
    """A bare socket; the instance runs in between, in the same thread."""

    def __init__(self, broker, path):
        self.broker = broker
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.sock.setblocking(False)
        self.unpacker = Unpacker()
        self.answers = []

    def send(self, topic, text=None, tag=1, flags=0, kind=message.REQUEST, **header):
        msg = Message(kind, topic, text, matchtag=tag, flags=flags)
        for name, value in header.items():
            setattr(msg, name, value)
        self.sock.sendall(pack(msg))

    def receive(self, count=1):
        self.broker.kernel.run(until=lambda: self._look() >= count)
        found, self.answers = self.answers[:count], self.answers[count:]
        return found if count > 1 else found[0]

    def _look(self):
        while True:
            try:
                data = self.sock.recv(1 << 16)
            except BlockingIOError:
                return len(self.answers)
            if not data:
                raise EOFError
            self.answers += self.unpacker.feed(data)

    def is_cut_off(self):
        self.broker.handle.rpc("attr.get", {"name": "size"}).get()
        try:
            self.receive()
        except (EOFError, ConnectionResetError):
            return True
        return False


@pytest.fixture
def server(broker, tmp_path_factory):
    server = SocketServer(broker.ctx, str(tmp_path_factory.mktemp("s") / "local-0"))
    yield server
    server.close()
    assert not os.path.exists(server.path)


@pytest.fixture
def client(broker, server):
    client = Client(broker, server.path)
    yield client
    client.sock.close()


def test_credentials_come_with_the_message(client):
    client.send("config.ping", "{}", userid=1234, rolemask=2)
    assert client.receive().payload["userid"] == 1234
    client.send("config.load", "{}", userid=1234, rolemask=2)
    assert client.receive().errnum == errno.EPERM


@pytest.mark.parametrize("text", ["[1]", "3", "nonsense", "[" * 100000, '"x"'])
def test_payload_must_be_an_object(client, text):
    client.send("attr.get", text)
    answer = client.receive()
    assert answer.errnum == errno.EPROTO and answer.payload_str == "Protocol error"


def test_half_a_surrogate_pair_does_no_harm(client):
    client.send("config.ping", '{"a":"\\ud800"}')
    assert client.receive().payload["a"] == "?"


def test_nonsense_is_cut_off(broker, client, server):
    client.sock.sendall(b"GET / HTTP/1.1\r\n\r\n" * 4)
    assert client.is_cut_off()
    assert not server.clients
    other = Client(broker, server.path)
    other.send("attr.get", '{"name":"size"}')
    assert other.receive().errnum == 0
    other.sock.close()


def test_only_requests_are_taken(broker, client):
    for kind in (message.RESPONSE, message.EVENT, 0):
        client.send("attr.get", '{"name":"size"}', kind=kind, tag=1)
    client.send("attr.get", '{"name":"size"}', tag=2)
    assert client.receive().matchtag == 2
    assert sum("only requests are taken" in line for line in broker.log()) == 3


def test_clients_may_hold_services(broker, client, server):
    client.send("service.add", '{"service":"mine"}')
    assert client.receive().errnum == 0
    h = broker.client("peer")
    plain, other, lost = h.rpc("mine.a", {"n": 1}), h.rpc("mine.b"), h.rpc("mine.c")
    odd = h.rpc("mine.o")
    stream = h.rpc("mine.s", {}, flags=2)
    asked = {msg.topic: msg for msg in (client.receive() for _ in range(5))}
    assert asked["mine.a"].payload == {"n": 1} and asked["mine.s"].streaming

    def answer(topic, text, **more):
        """Answer a request; the tag is that it came with."""
        client.send(topic, text, kind=message.RESPONSE, tag=asked[topic].matchtag, **more)

    # Answered in any order.
    answer("mine.b", "why not", errnum=errno.EPERM)
    for n in (1, 2):
        answer("mine.s", f'{{"n":{n}}}', flags=message.FLAG_STREAMING)
    answer("mine.a", '{"n":2}')
    assert plain.get() == {"n": 2}
    answer("mine.o", "[1]")
    assert "the answer is not a JSON object" in refused(errno.EPROTO, odd.get)
    assert "why not" in refused(errno.EPERM, other.get)
    assert stream.get() == {"n": 1}
    stream.reset()
    assert stream.get() == {"n": 2}
    stream.reset()
    client.sock.close()
    for rpc in (lost, stream):
        assert "module disconnect" in refused(errno.EHOSTUNREACH, rpc.get)
    assert "No service matching mine.d is registered" in refused(errno.ENOSYS, h.rpc("mine.d").get)


def test_a_client_that_reads_slowly_gets_everything(broker, client):
    text = "x" * 100000
    broker.call("log.clear")
    for _ in range(50):
        broker.ctx.log(7, text)
    client.send("log.dmesg", "{}", flags=message.FLAG_STREAMING)
    answers = client.receive(51)
    assert [a.errnum for a in answers] == [0] * 50 + [errno.ENODATA]
    assert all(a.payload["text"] == text for a in answers[:50])


def test_a_client_that_never_reads_is_cut_off(broker, client, server, monkeypatch):
    monkeypatch.setattr("flux_embedded.broker.server.MAX_BACKLOG", 1 << 20)
    broker.ctx.log(7, "x" * (4 << 20))
    broker.kernel.run(until=lambda: server.clients)
    client.send("log.dmesg", "{}", flags=message.FLAG_STREAMING)
    broker.kernel.run(until=lambda: not server.clients)
    assert any("does not read its responses" in line for line in broker.log())


def test_other_users_are_refused(broker, server, monkeypatch):
    monkeypatch.setattr("flux_embedded.broker.server.peer_uid", lambda sock: 4711)
    client = Client(broker, server.path)
    assert client.is_cut_off()
    assert any("refused a connection of user 4711" in line for line in broker.log())
    client.sock.close()


class Odd(Service):
    """Answers with text that is not JSON."""

    name = "odd"

    @request("get")
    def get(self, msg):
        return {"x": object()}


def test_payload_that_is_not_json(broker, client):
    """It costs the client that asked its answer, and no other client anything."""
    odd = Odd(broker.ctx)
    odd.start()
    client.send("odd.get")
    answer = client.receive()
    assert answer.errnum == errno.EIO and "cannot be sent" in answer.payload_str
    client.send("attr.get", '{"name": "size"}', tag=2)
    assert client.receive().errnum == 0
    odd.close()
