# SPDX-License-Identifier: LGPL-3.0-or-later
"""The socket's two ends: frames, and an outside program's link."""

import os
import select
import socket
import threading

import pytest

from flux_engine.kernel import message
from flux_engine.kernel.link import Unpacker, connect, pack
from flux_engine.kernel.message import Message
from flux_engine.kernel.task import REACTOR_NOWAIT


def frame(**fields):
    msg = Message(message.REQUEST, "a.b", fields.pop("text", None), fields.pop("obj", None))
    for name, value in fields.items():
        setattr(msg, name, value)
    return msg


@pytest.mark.parametrize("chunk", [1, 3, 7, 1000])
def test_frames_survive_any_cut(chunk):
    sent = [
        frame(obj={"x": "ƒ", "n": 2**63}, matchtag=7, flags=message.FLAG_STREAMING),
        frame(),
        frame(text="", errnum=5),
        frame(text="line\nline", nodeid=3, userid=12, rolemask=2),
    ]
    data = b"".join(pack(msg) for msg in sent)
    unpacker = Unpacker()
    got = []
    for start in range(0, len(data), chunk):
        got += unpacker.feed(data[start : start + chunk])
    for before, after in zip(sent, got):
        for name in (
            "type", "topic", "matchtag", "flags", "errnum", "nodeid", "userid", "rolemask", "payload_str",
        ):  # fmt: skip
            assert getattr(before, name) == getattr(after, name)
    assert len(got) == len(sent)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\1x", b"\0\0\0\5[1,2]", b"\0\0\0\5hello",
        b"\0\0\0\24[1,null,1,0,0,0,0,0]", b"GET / HTTP/1.1\r\n\r\n",
    ],
)  # fmt: skip
def test_other_data_than_frames_is_refused(data):
    with pytest.raises(ValueError):
        Unpacker().feed(data)


@pytest.fixture
def peer(tmp_path):
    """A listening socket and a thread that answers each request by ``reply(msg) -> messages``."""
    path = str(tmp_path / "s")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def serve(reply):
        def loop():
            connection, _ = server.accept()
            unpacker = Unpacker()
            while True:
                data = connection.recv(65536)
                if not data:
                    return
                for msg in unpacker.feed(data):
                    answers = reply(msg)
                    if answers is None:
                        connection.close()
                        return
                    connection.sendall(b"".join(pack(answer) for answer in answers))

        threading.Thread(target=loop, daemon=True).start()
        return connect(f"local://{path}")

    yield serve
    server.close()


def test_a_reactor_that_does_not_wait_handles_arrived_messages(peer):
    h = peer(lambda msg: [msg.response(None, {})])
    seen = []
    h.rpc("far.away").then(lambda future: seen.append(future.get()))
    select.select([h.kernel.uplink.fileno()], [], [])
    h.reactor_run(flags=REACTOR_NOWAIT)
    assert seen == [{}]


def test_an_instance_that_goes_away_fails_pending_requests(peer):
    h = peer(lambda msg: None)
    with pytest.raises(ConnectionResetError):
        h.rpc("far.away").get()
    with pytest.raises(BrokenPipeError):
        h.rpc("far.away").get()


def test_no_instance(tmp_path, monkeypatch):
    monkeypatch.setenv("FLUX_URI", f"local://{tmp_path}/nosuch")
    with pytest.raises(OSError, match=f"broker socket {tmp_path}/nosuch was not found"):
        connect()
    with pytest.raises(OSError, match="Unable to find connector name 'ssh'"):
        connect("ssh://host/path")


@pytest.mark.parametrize("name", ["FLUX_HANDLE_USERID", "FLUX_HANDLE_ROLEMASK"])
def test_credentials_that_are_no_numbers(monkeypatch, name):
    monkeypatch.setenv(name, "guest")
    with pytest.raises(OSError, match=f"{name}='guest' is invalid: expected a number"):
        connect("local:///nosuch")


def test_posing_as_a_guest(peer, monkeypatch):
    monkeypatch.setenv("FLUX_HANDLE_USERID", "01234")  # decimal, as libflux reads it
    monkeypatch.setenv("FLUX_HANDLE_ROLEMASK", "0x2")
    h = peer(lambda msg: [msg.response(None, {"userid": msg.userid, "rolemask": msg.rolemask})])
    assert h.rpc("who.am-i").get() == {"userid": 1234, "rolemask": 2}
    monkeypatch.delenv("FLUX_HANDLE_USERID")
    monkeypatch.delenv("FLUX_HANDLE_ROLEMASK")
    h = peer(lambda msg: [msg.response(None, {"userid": msg.userid, "rolemask": msg.rolemask})])
    assert h.rpc("who.am-i").get() == {"userid": os.getuid(), "rolemask": 5}
