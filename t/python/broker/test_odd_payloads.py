# SPDX-License-Identifier: LGPL-3.0-or-later
"""Whatever is in a payload: one answer, never a traceback, and the service goes on."""

import errno
import itertools

import pytest
from broker_help import Broker

ODD = [
    None,
    True,
    -1,
    0,
    1.5,
    1e300,
    "",
    "x",
    "0-3",
    "[",
    "99999999999999",
    "\ud800",
    "é" * 70,
    [],
    [1],
    ["x"],
    {},
    {"x": 1},
]

#: service -> keys that its requests look at
KEYS = {
    "resource": (
        "targets",
        "ranks",
        "reason",
        "mode",
        "name",
        "expiration",
        "R",
        "path",
        "force",
        "matchtag",
    ),
    "module": ("path", "args", "name", "status"),
    "attr": ("name", "value"),
    "log": ("level", "name", "text", "rank", "follow", "nobacklog", "matchtag"),
    "event": ("topic", "payload"),
    "service": ("service",),
    "config": ("config",),
    "overlay": ("rank", "ranks", "matchtag"),
    "groups": ("name",),
}

#: a payload that is in order, for requests that look at several keys
VALID = {
    "targets": "1",
    "mode": "overwrite",
    "name": "x",
    "level": 6,
    "text": "x",
    "topic": "x",
    "path": "/nosuch/x.py",
}


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    broker = Broker(tmp_path_factory.mktemp("odd"), size=4, services=("kvs", "resource"))
    broker.instance.ctx.attrs.define("log-stderr-level", "-1")
    yield broker
    broker.instance.stop()


@pytest.mark.parametrize("service", KEYS)
def test_odd_payloads(there, service):
    modules = there.instance.modules
    holders = {s.name: s for s in there.instance.infra}
    holders.update((name, module.service) for name, module in modules.table.items())
    methods = sorted(topic.partition(".")[2] for topic in holders[service].methods)
    for method in methods:
        if method in ("shutdown", "disconnect"):
            continue
        payloads = [{}] + [{key: value} for key, value in itertools.product(KEYS[service], ODD)]
        payloads += [{**VALID, key: value} for key, value in itertools.product(KEYS[service], ODD)]
        for payload in payloads:
            peer = there.client("peer")
            future = peer.rpc(f"{service}.{method}", payload, flags=2)
            there.settle()
            if future.is_ready():
                try:
                    future.get()
                except OSError as exc:
                    assert exc.errno not in (errno.EIO, errno.ENOSYS), (method, payload, exc)
            else:
                # Notices of cancellation have no answer of their own, and an empty log has nothing to follow yet.
                assert method.endswith("-cancel") or method == "dmesg", (method, payload)
            peer.task.close()
            there.settle()
    assert not [line for line in there.log() if "Traceback" in line or "object is not" in line]
