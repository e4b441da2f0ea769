# SPDX-License-Identifier: LGPL-3.0-or-later
"""The KVS: its service by messages, and flux.kvs."""

import errno

import pytest
from in_process import InProcess, refused

import flux.kvs as kvs
from flux.constants import FLUX_RPC_STREAMING
from flux_embedded.services.kvs import entries
from flux_engine.kernel import message


@pytest.fixture
def instance():
    instance = InProcess(services=["kvs"])
    yield instance
    instance.stop()


@pytest.fixture
def h(instance):
    return instance.bindings()


def commit(h, *ops, **more):
    return h.rpc("kvs.commit", {"ops": list(ops), **more}).get()["rootseq"]


def tree(instance):
    found = entries(instance.ctx.kvs.root, "")
    return {name: text for name, kind, text in found if kind != "dir"}


@pytest.mark.parametrize(
    "op, number",
    [
        (["append", "a", "x"], errno.EISDIR),
        (["put", "a..b", "x"], errno.EINVAL),
        (["put", "", "x"], errno.EINVAL),
        (["put", ".", "x"], errno.EINVAL),
        (["put", 3, "x"], errno.EPROTO),
        (["put", "k", 3], errno.EINVAL),
        (["put", "k"], errno.EPROTO),
        (["nosuch", "k"], errno.EPROTO),
        ([], errno.EPROTO),
        (7, errno.EPROTO),
        (["put", "k." * 1000 + "k", "x"], errno.EINVAL),
    ],
)
def test_a_commit_that_fails_changes_nothing(instance, h, op, number):
    commit(h, ["put", "a.v", "1"], ["put", "log", "x"], ["append", "log", "y"])
    before, seq = tree(instance), commit(h)
    ops = [
        ["put", "new.dir.key", "1"], ["append", "log", "z"], ["unlink", "a"], ["mkdir", "a"], ["put", "log.w", "2"],
        ["unlink", "log"], ["mkdir", "a"],
    ]  # fmt: skip
    refused(number, commit, h, *ops, op)
    assert tree(instance) == before
    assert commit(h) == seq + 1


def test_guests_are_kept_out(instance):
    guest = instance.bindings(instance.client("guest", userid=1234, rolemask=message.ROLE_USER))
    refused(errno.EPERM, guest.rpc("kvs.lookup", {"key": "a"}).get)


def test_keys_of_the_bindings(h):
    """Values of each kind: fact_values_of_the_kvs."""
    kvs.put(h, "a..b.", "empty parts do not count")
    refused(errno.ENOENT, kvs.get_key_direct, h, "a.b")
    kvs.commit(h)
    assert kvs.get(h, ".a.b") == kvs.get_key_direct(h, "a.b") == "empty parts do not count"
    refused(errno.ENOTSUP, kvs.get, h, "a.b", namespace="n")


def test_whoever_waited_in_vain_is_not_called_back(instance, h):
    instance.load_module("job-manager")
    rpc = h.rpc("job-manager.journal-batches", flags=FLUX_RPC_STREAMING)
    assert rpc.get() == {"events": []}
    rpc.reset()
    refused(errno.ETIMEDOUT, rpc.wait_for, 0.1)
    seen = []
    rpc.then(lambda future: seen.append(future.error_string()))
    h.reactor_run()
    assert seen == ["File exists"]
    refused(errno.EEXIST, rpc.get)
