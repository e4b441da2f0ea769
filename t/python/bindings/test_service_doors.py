# SPDX-License-Identifier: LGPL-3.0-or-later
"""All methods of all services with random payloads: a response, never a traceback.

Messages from sockets are checked on arrival (`flux_engine.kernel.service.check_form` and the
services' own checks); an unforeseen payload would be answered EIO with a traceback in the log.
"""

import errno
import inspect
import json
import random
import re

import pytest
from in_process import InProcess

import flux.job
from flux.scheduler.testing import make_R
from flux_engine.kernel.defaults import METHODS
from flux_engine.kernel.service import check_form

#: They end or replace the services under test.
LEFT_OUT = {"module.remove", "module.load"}
KEYS = "id userid ids type states name all enable start reason key namespace matchtag rank ranks targets mode path jobspec".split()
VALUES = [
    None, True, False, 0, 1, -1, 3, 2**70, 1.5, float("inf"), "", "x", "0-3", "n0", "all", "cancel", "up", "a.b",
    "f1", "none",
]  # fmt: skip


@pytest.fixture
def instance():
    instance = InProcess(size=4, R=make_R(4, 4), hosts=["n0", "n1", "n2", "n3"])
    instance.ctx.attrs.define("log-stderr-level", "-1")
    yield instance
    instance.stop()


def methods_of(instance):
    """{topic: (streaming, keys that its handler's source mentions)}."""
    found = {}
    for endpoint in instance.kernel.services.values():
        service = endpoint if endpoint.is_service else None
        for method in METHODS.keys() - {"shutdown", "disconnect"} if service else ():
            found[f"{service.name}.{method}"] = (False, ["op", "flags"])
        for topic, (function, _, streaming, form, _) in service.methods.items() if service else ():
            if topic in LEFT_OUT or topic.endswith((".shutdown", ".disconnect")):
                continue
            keys = {key.rstrip("?") for key in (form if isinstance(form, dict) else ())}
            keys.update(re.findall(r'"([a-z_-]+)"', inspect.getsource(function)))
            found[topic] = (streaming, sorted(keys))
    return found


def value(chance, ids, depth=0):
    kind = chance.random()
    if kind < 0.65 or depth > 2:
        return chance.choice([*VALUES, chance.choice(ids)])
    if kind < 0.82:
        return [value(chance, ids, depth + 1) for _ in range(chance.randrange(3))]
    return {chance.choice(KEYS): value(chance, ids, depth + 1) for _ in range(chance.randrange(4))}


@pytest.mark.parametrize("seed", [1, 2])
def test_no_payload_is_too_odd(instance, seed):
    chance = random.Random(seed)
    h = instance.handle
    spec = flux.job.JobspecV1.from_command(["true"])
    ids = [int(flux.job.submit(h, spec)) for _ in range(3)]
    methods = methods_of(instance)
    assert len(methods) > 100
    topics = sorted(methods)
    for _ in range(2500):
        topic = chance.choice(topics)
        streaming, keys = methods[topic]
        names = [*keys, *keys, *keys, *KEYS]
        count = chance.randrange(5)
        payload = {chance.choice(names): value(chance, ids) for _ in range(count)}
        if "id" in keys and chance.random() < 0.5:
            payload["id"] = chance.choice(ids)
        payload = chance.choice([payload] * 9 + [None])
        rpc = h.rpc(topic, payload, flags=2 if streaming else 0)
        instance.kernel.run_until_idle()
        if rpc.is_ready():
            try:
                rpc.get()
            except OSError as exc:
                assert exc.errno != errno.EIO, (topic, json.dumps(payload), exc.strerror)
        rpc.stop()
        if chance.random() < 0.01:
            urgency = chance.randrange(32)
            try:
                future = flux.job.submit_async(h, spec, urgency=urgency, novalidate=True)
                ids.append(future.get_id())
            except OSError as exc:
                # Submission may have been disabled by now, or the instance's time be over.
                assert exc.errno == errno.EINVAL


FORM = {"id": int, "note?": (str, type(None)), "t": float, "any": object}


@pytest.mark.parametrize(
    "body, text",
    [
        (None, "a.b must be an object"),
        ({}, "a.b.id is missing"),
        ([], "a.b must be an object"),
        ({"id": True, "t": 1, "any": 1}, "a.b.id must be an integer"),
        ({"id": 1.0, "t": 1, "any": 1}, "a.b.id must be an integer"),
        ({"id": 1, "t": True, "any": 1}, "a.b.t must be a number"),
        ({"id": 1, "t": 1}, "a.b.any is missing"),
        ({"id": 1, "t": 1, "any": 1, "note": 1}, "a.b.note must be a string or null"),
    ],
)
def test_forms_that_are_not(body, text):
    with pytest.raises(OSError) as info:
        check_form(body, FORM, "a.b")
    assert (info.value.errno, info.value.strerror) == (errno.EPROTO, "Protocol error")
    assert info.value.detail == text
