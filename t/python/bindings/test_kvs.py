# SPDX-License-Identifier: LGPL-3.0-or-later
"""The KVS: its service by messages, and flux.kvs."""

import errno

import bindings_instance
import pytest

import flux.kvs as kvs
from flux.constants import FLUX_RPC_STREAMING
from flux.wrapper import InvalidArguments
from flux_engine.kernel import message


@pytest.fixture
def instance():
    instance = bindings_instance.make("kvs")
    yield instance
    instance.stop()


@pytest.fixture
def h(instance):
    return bindings_instance.handle(instance)


def commit(h, *ops, **more):
    return h.rpc("kvs.commit", {"ops": list(ops), **more}).get()["rootseq"]


def lookup(h, key, **more):
    return h.rpc("kvs.lookup", {"key": key, **more}).get()["value"]


def tree(h, **more):
    entries = h.rpc("kvs.dir", {"recursive": True, "values": True, **more}).get()["entries"]
    return {name: text for name, kind, text in entries if kind != "dir"}


def watch(h, key, **more):
    return h.rpc("kvs.watch", {"key": key, **more}, flags=FLUX_RPC_STREAMING)


def ready(instance, rpc):
    instance.kernel.run_until_idle()
    return rpc.is_ready()


def following(rpc):
    value = rpc.get()["value"]
    rpc.reset()
    return value


def end_of(rpc):
    with pytest.raises(OSError) as info:
        rpc.get()
    return info.value.errno


# -- commit ------------------------------------------------------------------


def test_operations_are_applied_in_order_and_together(h):
    before = commit(h)
    assert (
        commit(h, ["put", "a.b", "1"], ["append", "a.b", "2"], ["put", "x", "y"], ["unlink", "x"])
        == before + 1
    )
    assert tree(h) == {"a.b": "12"}


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
def test_a_commit_that_fails_changes_nothing(h, op, number):
    commit(
        h, ["put", "a.v", "1"], ["put", "log", "x"], ["append", "log", "y"], ["symlink", "l", "a"]
    )
    before, seq = tree(h), h.rpc("kvs.getroot", {"namespace": "primary"}).get()["rootseq"]
    ops = [
        ["put", "new.dir.key", "1"],
        ["append", "log", "z"],
        ["unlink", "a"],
        ["mkdir", "a"],
        ["put", "l.v.w", "2"],
    ]
    with pytest.raises(OSError) as info:
        commit(h, *ops, op)
    assert info.value.errno == number
    assert tree(h) == before
    assert h.rpc("kvs.getroot", {"namespace": "primary"}).get()["rootseq"] == seq


@pytest.mark.parametrize(
    "payload", [None, {}, {"ops": 3}, {"ops": None}, {"ops": {}, "namespace": 3}]
)
def test_malformed_commits(h, payload):
    with pytest.raises(OSError):
        h.rpc("kvs.commit", payload).get()


def test_a_value_in_the_way_of_a_directory_is_replaced(h):
    commit(h, ["put", "a", "1"])
    commit(h, ["put", "a.b", "2"])
    assert tree(h) == {"a.b": "2"}
    commit(h, ["put", "a", "3"])
    assert tree(h) == {"a": "3"}


def test_unlink_takes_directories_and_ignores_what_is_not_there(h):
    commit(h, ["put", "a.b.c", "1"], ["put", "a.d", "2"])
    commit(h, ["unlink", "a.b"], ["unlink", "nosuch.key"], ["unlink", "a.d.e"])
    assert tree(h) == {"a.d": "2"}


def test_mkdir_keeps_what_is_there(h):
    commit(h, ["put", "a.b", "1"], ["mkdir", "a"], ["mkdir", "e.f"])
    assert h.rpc("kvs.dir", {"recursive": True}).get()["entries"] == [
        ["a", "dir", None], ["a.b", "val", None], ["e", "dir", None], ["e.f", "dir", None],
    ]  # fmt: skip


def test_commits_are_seen_in_order_by_everybody(instance, h):
    """RFC 16: who has seen a later commit sees all earlier ones."""
    other = bindings_instance.another_handle(instance)
    futures = [h.rpc("kvs.commit", {"ops": [["put", "n", str(i)]]}) for i in range(5)]
    assert other.rpc("kvs.lookup", {"key": "n"}).get()["value"] == "4"
    seqs = [f.get()["rootseq"] for f in futures]
    assert seqs == list(range(seqs[0], seqs[0] + 5))


def test_what_is_put_is_text_of_any_kind(h):
    for text in ("", "a\nb", "\u0192\0", "x" * 100000):
        commit(h, ["put", "k", text])
        assert lookup(h, "k") == text


# -- reading -----------------------------------------------------------------


def test_lookup_errors(h):
    commit(h, ["put", "a.b", "1"])
    for key, number, text in [
        ("a", errno.EISDIR, "Is a directory"),
        ("nosuch", errno.ENOENT, "No such file or directory"),
        ("a.b.c", errno.ENOENT, "No such file or directory"),
        ("", errno.ENOENT, "No such file or directory"),
        (3, errno.EPROTO, "Protocol error"),
    ]:
        with pytest.raises(OSError) as info:
            lookup(h, key)
        assert (info.value.errno, info.value.strerror) == (number, text)


def test_several_keys_are_looked_up_at_once_or_not_at_all(h):
    commit(h, ["put", "a", "1"], ["put", "b.c", "2"])
    assert h.rpc("kvs.lookup", {"keys": ["b.c", "a"]}).get() == {"values": {"a": "1", "b.c": "2"}}
    with pytest.raises(FileNotFoundError):
        h.rpc("kvs.lookup", {"keys": ["a", "nosuch"]}).get()


def test_dir_of_a_value_and_of_nothing(h):
    commit(h, ["put", "a", "1"])
    with pytest.raises(NotADirectoryError):
        h.rpc("kvs.dir", {"key": "a"}).get()
    with pytest.raises(FileNotFoundError):
        h.rpc("kvs.dir", {"key": "b"}).get()


def test_guests_are_kept_out(instance):
    guest = bindings_instance.another_handle(instance, userid=1234, rolemask=message.ROLE_USER)
    with pytest.raises(PermissionError):
        guest.rpc("kvs.lookup", {"key": "a"}).get()


# -- links and namespaces ------------------------------------------------------


def test_links_are_followed_for_reading_and_writing(h):
    commit(h, ["put", "a.b", "1"], ["symlink", "l", "a"], ["symlink", "m", "l.b"])
    assert lookup(h, "l.b") == lookup(h, "m") == "1"
    commit(h, ["put", "l.c.d", "2"], ["append", "m", "x"])
    assert tree(h) == {"a.b": "1x", "a.c.d": "2", "l": "a", "m": "l.b"}
    commit(h, ["unlink", "l"])
    assert lookup(h, "a.b") == "1x"
    with pytest.raises(FileNotFoundError):
        lookup(h, "m")


def test_a_circle_of_links_is_an_error(h):
    commit(h, ["symlink", "a", "b"], ["symlink", "b", "a"])
    with pytest.raises(OSError) as info:
        lookup(h, "a")
    assert info.value.errno == errno.ELOOP


def test_namespaces(h):
    h.rpc("kvs.namespace-create", {"namespace": "n"}).get()
    with pytest.raises(FileExistsError):
        h.rpc("kvs.namespace-create", {"namespace": "n"}).get()
    assert commit(h, ["put", "k", "1"], namespace="n") == 1
    assert lookup(h, "k", namespace="n") == "1"
    with pytest.raises(FileNotFoundError):
        lookup(h, "k")
    names = [ns["namespace"] for ns in h.rpc("kvs.namespace-list").get()["namespaces"]]
    assert names == ["primary", "n"]
    h.rpc("kvs.namespace-remove", {"namespace": "n"}).get()
    assert (
        h.rpc("kvs.namespace-remove", {"namespace": "n"}).get() is None
    )  # a missing one is no error
    for call in (
        lambda: lookup(h, "k", namespace="n"),
        lambda: h.rpc("kvs.namespace-remove", {"namespace": "primary"}).get(),
    ):
        with pytest.raises(OSError, match="Operation not supported") as info:
            call()
        assert info.value.errno == errno.ENOTSUP


# -- watching ----------------------------------------------------------------


def test_watch_tells_the_value_and_every_change(instance, h):
    commit(h, ["put", "a.b", "1"])
    rpc = watch(h, "a.b")
    assert following(rpc) == "1"
    commit(h, ["put", "other", "x"], ["put", "a.b", "1"])
    assert not ready(instance, rpc)
    commit(h, ["put", "a.b", "2"], ["put", "a.b", "3"])
    assert following(rpc) == "3"
    commit(h, ["unlink", "a"])
    assert end_of(rpc) == errno.ENOENT


def test_watch_of_appended_text_tells_what_was_added(instance, h):
    rpc = watch(h, "log", append=True, waitcreate=True)
    assert not ready(instance, rpc)
    commit(h, ["append", "log", "a"], ["append", "log", "b"])
    assert following(rpc) == "ab"
    commit(h, ["append", "log", "c"])
    assert following(rpc) == "c"
    commit(h, ["put", "log", "new"])
    assert following(rpc) == "new"
    commit(h, ["put", "log.dir", "x"])
    assert end_of(rpc) == errno.EISDIR


def test_watch_follows_links_and_ends_with_its_namespace(instance, h):
    rpc = watch(h, "l.output", append=True, waitcreate=True)
    commit(h, ["symlink", "l", "d"], ["append", "d.output", "one"])
    assert following(rpc) == "one"
    commit(h, ["append", "d.output", "two"])
    assert following(rpc) == "two"
    h.rpc("kvs.namespace-create", {"namespace": "n"}).get()
    commit(h, ["put", "k", "1"], namespace="n")
    inside = watch(h, "k", namespace="n")
    assert following(inside) == "1"
    h.rpc("kvs.namespace-remove", {"namespace": "n"}).get()
    assert end_of(inside) == errno.ENODATA
    assert not ready(instance, rpc)


def test_watch_of_what_is_not_there(h):
    assert end_of(watch(h, "nosuch")) == errno.ENOENT
    with pytest.raises(OSError) as info:
        h.rpc("kvs.watch", {"key": "a"}).get()
    assert info.value.errno == errno.EPROTO


def test_watch_cancel_and_disconnect(instance, h):
    commit(h, ["put", "a", "1"])
    rpc = watch(h, "a")
    following(rpc)
    h.rpc("kvs.watch-cancel", {"matchtag": rpc.pimpl.handle.matchtag}, flags=1)
    assert end_of(rpc) == errno.ENODATA
    other = bindings_instance.another_handle(instance)
    assert following(watch(other, "a")) == "1"
    assert h.rpc("kvs.stats-get").get()["watchers"] == 1
    other.handle.task.close()
    assert h.rpc("kvs.stats-get").get()["watchers"] == 0


# -- faults ------------------------------------------------------------------


def test_commits_fail_as_often_as_asked(h):
    h.rpc("kvs.fault", {"fail_commits": 2, "match": ".R"}).get()
    commit(h, ["put", "job.1.eventlog", "x"])
    for _ in range(2):
        with pytest.raises(OSError) as info:
            commit(h, ["put", "job.1.R", "x"])
        assert info.value.errno == errno.EIO
    assert tree(h) == {"job.1.eventlog": "x"}
    commit(h, ["put", "job.1.R", "x"])
    h.rpc("kvs.fault", {"fail_commits": 1, "errnum": errno.ENOSPC}).get()
    with pytest.raises(OSError) as info:
        commit(h)
    assert info.value.errno == errno.ENOSPC
    h.rpc("kvs.fault", {"fail_commits": 5}).get()
    h.rpc("kvs.fault", {"fail_commits": 0}).get()
    commit(h)
    assert h.rpc("kvs.stats-get").get()["faults"] == 3
    with pytest.raises(OSError):
        h.rpc("kvs.fault", {"fail_commits": -1}).get()


# -- flux.kvs ------------------------------------------------------------------


def test_values_are_json_or_text(h):
    values = {"n": 1, "f": 1.5, "s": "str", "o": {"a": [1, None]}, "t": True}
    for key, value in values.items():
        kvs.put(h, f"v.{key}", value)
    kvs.put(h, "v.raw", "just text", raw=True)
    kvs.put(h, "v.bytes", b"b", raw=True)
    kvs.put(h, "v.empty", "", raw=True)
    assert not kvs.exists(h, "v")
    kvs.commit(h)
    for key, value in {**values, "raw": "just text", "bytes": "b", "empty": None}.items():
        assert kvs.get(h, f"v.{key}") == kvs.get_key_direct(h, f"v.{key}") == value


def test_directories(h):
    with kvs.KVSTxn(h) as txn:
        txn.put("d.b", 2)
        txn.put("d.a", 1)
        txn.mkdir("d.sub")
        txn.symlink("d.link", "d.a")
    assert (
        kvs.exists(h, "d")
        and kvs.isdir(h, "d")
        and not kvs.isdir(h, "d.a")
        and not kvs.isdir(h, "nosuch")
    )
    directory = kvs.get(h, "d")
    assert isinstance(directory, kvs.KVSDir)
    assert directory.list_all() == (["a", "b", "link"], ["sub"])
    assert (list(directory.files()), list(directory.directories())) == directory.list_all()
    assert (
        directory["link"] == 1
        and "sub" in directory
        and "x" not in directory
        and len(directory) == 4
    )
    assert list(directory["sub"]) == []
    with pytest.raises(KeyError):
        directory["x"]
    with pytest.raises(IsADirectoryError):
        kvs.get_key_direct(h, "d")
    for call in (lambda: kvs.get(h, "nosuch"), lambda: kvs.get_dir(h, "nosuch")):
        with pytest.raises(FileNotFoundError):
            call()


def test_a_directory_is_written_through(h):
    kvs.put_mkdir(h, "w")
    kvs.commit(h)
    directory = kvs.get_dir(h, "w")
    directory["a"] = 1
    directory.fill({"b": 2})
    directory.mkdir("c")
    assert kvs.isdir(h, "w.c")
    with pytest.raises(FileNotFoundError):
        directory.mkdir("c", {"d": 3})
    assert [kvs.get(h, key) for key in ("w.a", "w.b")] == [1, 2]
    del directory["a"]
    directory.commit()
    assert not kvs.exists(h, "w.a")


def test_transactions(h):
    txn = kvs.KVSTxn(h, "job.1")
    txn.put("R", {"version": 1})
    assert txn.commit_async().get() is None
    assert kvs.get(h, "job.1.R") == {"version": 1}
    txn.clear()
    txn.put("x", "1", raw=True)
    future = kvs.commit_async(h, _kvstxn=txn)
    # A transaction can be dropped, or used on, once it is on its way.
    txn.put("y", "2", raw=True)
    assert future.get() is None
    assert sorted(kvs.get(h, "job.1")) == ["R", "x"]
    # It commits however the block ends, as on a real Flux.
    with pytest.raises(RuntimeError), kvs.KVSTxn(h) as other:
        other.put("z", 1)
        raise RuntimeError
    assert kvs.get(h, "z") == 1


def test_module_functions_share_the_handles_transaction(h):
    kvs.put(h, "a", 1)
    kvs.put_mkdir(h, "d")
    kvs.put_symlink(h, "l", "a")
    kvs.put_unlink(h, "nosuch")
    assert kvs.commit_async(h).get() is None
    assert kvs.get(h, "l") == 1
    assert kvs.commit(h) is None


def test_failed_commit_through_the_bindings(h):
    h.rpc("kvs.fault", {"fail_commits": 1}).get()
    txn = kvs.KVSTxn(h)
    txn.put("a", 1)
    seen = []
    future = txn.commit_async()
    future.then(lambda f: (seen.append(f.error_string()), h.reactor_stop()))
    h.reactor_run()
    assert seen == ["Input/output error"]
    with pytest.raises(OSError) as info:
        future.get()
    assert info.value.errno == errno.EIO


def test_wrong_types(h):
    txn = kvs.KVSTxn(h)
    for call, error in (
        (lambda: txn.put("a", object()), TypeError),
        (lambda: txn.put("a", 1, raw=True), AttributeError),
        (lambda: kvs.get(h, 1), InvalidArguments),
        (lambda: kvs.namespace_create(h, 1), InvalidArguments),
        (lambda: kvs.get_dir(h)[1], InvalidArguments),
        (lambda: kvs.KVSDir(), ValueError),
    ):
        with pytest.raises(error):
            call()
    for call in (lambda: kvs.get(h, None), lambda: txn.put("", 1), lambda: txn.symlink("a", None)):
        with pytest.raises(OSError, match="EINVAL") as info:
            call()
        assert info.value.errno == errno.EINVAL


def test_namespace_argument(h):
    h.rpc("kvs.namespace-create", {"namespace": "n"}).get()
    with kvs.KVSTxn(h, namespace="n") as txn:
        txn.put("k", [1])
    assert kvs.get(h, "k", namespace="n") == [1]
    assert not kvs.exists(h, "k")
    kvs.put(h, "k", 2)
    kvs.commit(h, namespace="n")
    assert kvs.get_key_direct(h, "k", namespace="n") == 2


def test_the_namespace_of_the_environment(h, monkeypatch):
    kvs.namespace_create(h, "n")
    monkeypatch.setenv("FLUX_KVS_NAMESPACE", "n")
    kvs.put(h, "k", 1)
    kvs.commit(h)
    assert kvs.get(h, "k") == 1 and kvs.exists(h, "k", namespace="n")
    assert not kvs.exists(h, "k", namespace="primary")


def test_empty_parts_of_a_key_do_not_count(h):
    kvs.put(h, "a..b.", 1)
    kvs.commit(h)
    assert kvs.get(h, ".a.b") == kvs.get(h, "a.b") == 1
    assert sorted(kvs.get(h, "a.")) == ["b"]
    assert kvs.join("a", "b", "c") == "a.b.c"


def test_a_directory_commits_at_the_end_of_its_block(h):
    kvs.put_mkdir(h, "d")
    kvs.commit(h)
    with kvs.get_dir(h, "d") as directory:
        directory.update({"a": 1, "b": 2})
        assert not kvs.exists(h, "d.a")
    directory = kvs.get_dir(h, "d")
    assert dict(directory.items()) == {"a": 1, "b": 2}
    del directory["a"]
    assert directory.commit_async().get() is None
    assert list(kvs.get_dir(h, "d")) == ["b"]
    with pytest.raises(NotADirectoryError):
        kvs.get_dir(h, "d.b")
    with pytest.raises(ValueError, match="non-None"):
        directory.fill(None)


def test_walk(h):
    kvs.put(h, "w.a", 1)
    kvs.put(h, "w.d.b", 2)
    kvs.put_mkdir(h, "w.d.e")
    kvs.commit(h)
    below = ("d", ["e"], ["b"])
    down = [(path, list(dirs), list(files)) for path, dirs, files in kvs.walk("w", True, h)]
    assert down == [("", ["d"], ["a"]), below, ("d.e", [], [])]
    with pytest.raises(ValueError, match="flux_handle"):
        kvs.walk("w")


def test_watching_a_key(h):
    def put(value):
        kvs.put(h, "k", value)
        kvs.commit(h)

    future = kvs.kvs_watch_async(h, "k", waitcreate=True)
    unique = kvs.kvs_watch_async(h, "k", waitcreate=True, uniq=True)
    with pytest.raises(TimeoutError):
        future.wait_for(0)
    for value in (1, 1, {"a": 2}):
        put(value)
    assert [future.get() for _ in range(3)] == [1, 1, {"a": 2}]
    assert [unique.get(autoreset=False), unique.get(), unique.get()] == [1, 1, {"a": 2}]
    future.cancel()
    assert future.get() is None and future.get() is None
    kvs.put_unlink(h, "k")
    kvs.commit(h)
    for late in (unique, kvs.kvs_watch_async(h, "k")):
        with pytest.raises(FileNotFoundError):
            late.get()
    seen = []

    def changed(future):
        seen.append(future.get())
        if seen[-1] is not None and seen[-1] < 3:
            put(seen[-1] + 1)
        elif seen[-1] == 3:
            future.cancel()

    put(1)
    kvs.kvs_watch_async(h, "k").then(changed)
    h.reactor_run()
    assert seen == [1, 2, 3, None]


def test_a_request_in_the_form_of_a_real_kvs(h):
    """Namespace, key and flags: the value comes as an object of RFC 11."""
    commit(h, ["put", "a.b", "1"])
    payload = {"namespace": "primary", "key": "a.b", "flags": 0}
    value = {"ver": 1, "type": "val", "data": "MQ=="}
    assert h.rpc("kvs.lookup", payload).get() == {"val": value}
    for key in ("namespace", "key"):
        with pytest.raises(OSError, match="Protocol error"):
            h.rpc("kvs.lookup", {name: payload[name] for name in payload if name != key}).get()
    with pytest.raises(OSError, match="Invalid argument"):
        h.rpc("kvs.lookup", {**payload, "flags": 2}).get()
    with pytest.raises(OSError, match="Protocol error"):
        h.rpc("kvs.namespace-create", {"namespace": "q", "owner": 0, "flags": 0}).get()


def test_whoever_waited_in_vain_is_not_called_back(h):
    rpc = h.rpc("kvs.watch", {"key": "nosuch", "waitcreate": True}, flags=FLUX_RPC_STREAMING)
    with pytest.raises(TimeoutError):
        rpc.wait_for(0.1)
    seen = []
    rpc.then(lambda future: seen.append(future.error_string()))
    h.reactor_run()
    assert seen == ["File exists"]
    with pytest.raises(FileExistsError):
        rpc.get()


def test_messages_are_taken_without_the_reactor(h):
    seen = []
    h.timer_watcher_create(0, lambda *args: seen.append("timer")).start()
    watcher = h.msg_watcher_create(lambda *args: seen.append("event"), message.EVENT, "a.*")
    watcher.start()
    assert h.event_subscribe("a.") == 0
    for number in range(3):
        assert h.event_send(f"a.{number}", {"n": number}) == 0
    assert [h.event_recv().payload["n"] for _ in range(2)] == [0, 1]
    assert seen == []
    h.timer_watcher_create(0, lambda *args: watcher.stop()).start()
    h.reactor_run()
    assert seen == ["timer", "event"]
    with pytest.raises(BlockingIOError):
        h.recv(flags=4)
    with pytest.raises(TypeError):
        h.event_recv("a.*")
    assert h.event_unsubscribe("a.") == 0
    with pytest.raises(FileNotFoundError):
        h.event_unsubscribe("a.")
