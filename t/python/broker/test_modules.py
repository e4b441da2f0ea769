# SPDX-License-Identifier: LGPL-3.0-or-later
"""Loading and unloading modules: the answer to the load command, the log, and the notices of the end."""

import errno
import os

import pytest
from broker_help import GOOD, Broker
from in_process import refused

CRASHED = "Connection reset by peer"
EXITED = "loader (module-python-exec) exited with exit code {}"

#: module text, errno and text of the load's failure, text on stderr
FAILURES = {
    "value": ("def mod_main(h, *args):\n raise ValueError('bad: %s' % (args,))", 22, "Invalid argument", "m.py: bad: ('a', 'b')\n"),
    "oserror": ("def mod_main(h, *a):\n raise OSError(25, 'some text')", 25, "Inappropriate ioctl for device", ""),
    "oserror-no-errno": ("def mod_main(h, *a):\n raise OSError('just text')", errno.ECONNRESET, CRASHED, ""),
    "other": ("def mod_main(h, *a):\n raise RuntimeError('oops')", errno.ECONNRESET, CRASHED, "RuntimeError: oops\n"),
    "import": ("import nosuchmodule", errno.EIO, EXITED.format(1), "No module named 'nosuchmodule'\n"),
    "syntax": ("def mod_main(:", errno.EIO, EXITED.format(1), "SyntaxError: invalid syntax\n"),
    "no-entry": ("x = 1", errno.EIO, EXITED.format(1), "m.py: no mod_main() or BrokerModule subclass found\n"),
    "two": (
        "from flux.brokermod import BrokerModule\nclass A(BrokerModule): pass\nclass B(BrokerModule): pass",
        errno.EIO,
        EXITED.format(1),
        "m.py: multiple BrokerModule subclasses found (A, B); define mod_main()\n",
    ),
    "exit": ("import sys\ndef mod_main(h, *a):\n sys.exit(3)", errno.EIO, EXITED.format(3), ""),
    "exit-at-import": ("import sys\nsys.exit(4)", errno.EIO, EXITED.format(4), ""),
    "exit-with-text": ("import sys\ndef mod_main(h, *a):\n sys.exit('why')", errno.EIO, EXITED.format(1), "why\n"),
    "service-taken": ("def mod_main(h, *a):\n h.service_register('config').get()", errno.EEXIST, "File exists", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_failure_before_running(broker, capfd, case):
    text, number, reason, stderr = FAILURES[case]
    path = broker.file("m.py", text)
    capfd.readouterr()
    assert broker.fails("module.load", {"path": path, "args": ["a b"]}) == (number, reason)
    printed = capfd.readouterr().err
    assert printed.endswith(f"broker.err[0]: m: {reason}\n")
    own = [line for line in printed.splitlines(True) if "broker.err[0]" not in line]
    assert "".join(own).endswith(stderr) if stderr else not own
    assert f"broker.err: m: {reason}" in broker.log()
    assert "m" not in broker.loaded()
    assert not [line for line in broker.log() if line.startswith("broker.crit")]


def test_a_normal_end_is_no_failure(broker):
    broker.load("m.py", "def mod_main(h, *args): return")  # before it runs
    assert "m" not in broker.loaded()
    assert "broker.debug: module m exited" in broker.log()
    broker.load("good.py", GOOD)
    assert broker.fails("good.stopok") == (errno.EHOSTUNREACH, "module disconnect")
    assert broker.log()[-1] == "broker.debug: module good exited"


@pytest.mark.parametrize("method", ["crash", "stoperr"])
def test_failure_in_a_handler(broker, capfd, method):
    broker.load("good.py", GOOD)
    assert broker.fails(f"good.{method}") == (errno.EHOSTUNREACH, "module disconnect")
    assert ("RuntimeError: handler crash" in capfd.readouterr().err) == (method == "crash")
    failed = [f"broker.err: good: {CRASHED}", "broker.crit: good module runtime failure"]
    assert broker.log()[-2:] == failed


@pytest.mark.parametrize("nopanic", [False, True])
def test_runtime_failure_ends_the_instance_unless_told_otherwise(tmp_path, nopanic):
    broker = Broker(tmp_path, nopanic=nopanic)
    ends = []
    broker.ctx.fatal = ends.append
    broker.load("good.py", GOOD)
    broker.fails("good.crash")
    assert ends == ([] if nopanic else ["good module runtime failure"])
    broker.stop()


def test_name_arguments_and_services(broker):
    broker.load("good.py", GOOD, "a b", "c=1", " ", name="other")
    # Arguments are split at white space.
    assert broker.call("other.hello") == {"name": "other", "args": ["a", "b", "c=1"]}
    assert "good" not in broker.loaded()
    text = "from flux.brokermod import BrokerModule\nclass M(BrokerModule):\n def run(self):\n"
    text += "  self.handle.service_register('sv').get()\n  super().run()\n"
    broker.load("m.py", text)
    (mod,) = [mod for mod in broker.call("module.list")["mods"] if mod["name"] == "m"]
    assert mod["services"] == ["m", "sv"] and mod["status"] == 1 and mod["path"].endswith("/m.py")
    assert broker.fails("service.add", {"service": "sv"}) == (errno.EEXIST, "File exists")
    broker.call("module.remove", {"name": "m"})
    assert broker.fails("sv.x") == (errno.ENOSYS, "No service matching sv.x is registered")


def test_refused_loads(broker):
    broker.load("good.py", GOOD)
    path, nowhere = broker.file("m.py", GOOD), "module not found in search path"
    for payload, number, text in (
        ({"path": broker.file("good.py", GOOD)}, errno.EEXIST, "File exists"),
        ({"path": "nosuch"}, errno.ENOENT, nowhere),
        ({"path": "good.py"}, errno.ENOENT, nowhere),
        ({"path": "/nosuch/m.py"}, errno.ENOENT, ""),
        ({"path": broker.file("c4.txt", "")}, errno.EINVAL, "could not determine loader from path"),
        ({"path": "kvs", "args": 3}, errno.EPROTO, ""),
        ({"path": path, "name": "a.b"}, errno.EINVAL, ""),
        ({"path": path, "name": ["x"]}, errno.EPROTO, ""),
        ({"path": path, "name": 3}, errno.EPROTO, ""),
    ):
        found = broker.fails("module.load", {"args": [], **payload})
        assert found[0] == number and found[1].startswith(text), payload
    assert broker.fails("module.load", {"path": "kvs"})[0] == errno.EPROTO
    missing = (errno.ENOENT, "No such file or directory")
    assert broker.fails("module.remove", {"name": "nosuch"}) == missing


WHERE = """
    import sys
    from flux.brokermod import BrokerModule, request_handler
    class M(BrokerModule):
        @request_handler("where")
        def where(self, msg):
            known = __name__ in sys.modules
            self.handle.respond(msg, {"name": __name__, "file": __file__, "known": known})
"""


def test_file_is_executed_under_a_stripped_name_outside_sys_modules(broker):
    broker.load("happy.py", WHERE)
    where = broker.call("happy.where")
    assert (where["name"], where["known"]) == ("ha", False)
    assert os.path.basename(where["file"]) == "happy.py"
    assert not (broker.directory / "__pycache__").exists()


def test_unload_waits_for_a_handler_and_fails_the_rest(broker):
    """A module blocked in a handler ends after it. Requests it never read fail with ENOSYS, those it kept with EHOSTUNREACH."""
    peer = broker.client("peer")
    peer.task.kernel.add_service("peer", peer.task)
    waiting = []
    peer.msg_watcher_create(lambda h, w, msg, a: waiting.append(msg), 1, "peer.*").start()
    broker.load("good.py", GOOD)
    parked, blocked = broker.handle.rpc("good.park"), broker.handle.rpc("good.block")
    removed = broker.handle.rpc("module.remove", {"name": "good"})
    broker.run()
    late = broker.handle.rpc("good.hello")
    broker.run()
    while peer.task.inbox:
        peer.task.dispatch(peer.task.inbox.popleft())
    assert not removed.is_ready() and not blocked.is_ready() and len(waiting) == 1
    peer.respond(waiting[0], {})
    broker.run()
    assert removed.get() is None and blocked.get() == {}
    for future, number in ((parked, errno.EHOSTUNREACH), (late, errno.ENOSYS)):
        refused(number, future.get)


def test_killed_module(broker):
    broker.load("good.py", GOOD)
    parked = broker.handle.rpc("good.park")
    broker.run()
    broker.modules.kill("good")
    broker.run()
    refused(errno.EHOSTUNREACH, parked.get)
    assert "good" not in broker.loaded()
    assert "broker.err: good: loader (module-python-exec) killed by Killed" in broker.log()


def test_standard_requests(broker):
    broker.load("m.py", "from flux.brokermod import BrokerModule\nclass M(BrokerModule):\n pass")
    pong = broker.call("m.ping", {"x": 1})
    assert (pong["x"], pong["rolemask"]) == (1, 5)
    guest = broker.client(userid=1234, rolemask=2)
    pong = guest.rpc("m.ping", {}).get()
    assert (pong["userid"], pong["rolemask"]) == (1234, 2)
    for op, flags, word in (("setbit", 1, 1), ("setbit", 4, 5), ("clrbit", 4, 1)):
        assert broker.call("m.debug", {"op": op, "flags": flags}) == {"flags": word}
    assert broker.fails("m.debug", {"op": "flip", "flags": 1})[0] == errno.EPROTO
    assert broker.call("m.stats-clear") is None and broker.call("m.config-reload", {}) is None
    text = refused(errno.EPERM, guest.rpc("m.debug", {"op": "clrbit", "flags": 0}).get)
    assert text == "Request requires owner credentials"
    assert sorted(broker.call("m.stats-get")) == ["rx", "tx"]
    assert broker.fails("m.nosuch") == (errno.ENOSYS, "Unknown service method 'm.nosuch'")


def test_builtin_modules(broker):
    assert broker.loaded() == ["overlay", "config", "rexec", "groups", "connector-local"]
    for name in ("content", "content-sqlite", "kvs", "heartbeat", "cron"):
        broker.call("module.load", {"path": name, "args": []})
    assert broker.call("kvs.ping", {"x": 1})["x"] == 1
    broker.call("module.remove", {"name": "kvs"})
    assert broker.fails("kvs.lookup", {"key": "x"})[0] == errno.ENOSYS
    broker.call("module.load", {"path": "kvs", "args": []})
    assert broker.fails("kvs.lookup", {"key": "x"})[0] == errno.ENOENT
    assert broker.fails("module.load", {"path": "cron", "name": "x", "args": []})[0] == errno.EINVAL


def test_python_modules_go_before_the_services_they_use(broker):
    broker.load("good.py", GOOD)
    broker.call("module.load", {"path": "kvs", "args": []})
    broker.load("other.py", GOOD)
    first = ["other", "good", "kvs", "connector-local"]
    assert broker.modules.removal_order()[:4] == first
