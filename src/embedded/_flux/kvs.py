"""The key-value store: lookups and watches, directories, transactions.

The embedded KVS has requests of its own (`flux_embedded.services.kvs`): values are text there, not objects of RFC 11.
"""

import base64
import errno
import os

from _flux import constants
from _flux.ffi import pointer_to
from _flux.function import failure, function, functions, itself, nothing
from _flux.futures import RPCFuture, send
from flux_engine.kernel.future import RPC_NORESPONSE, RPC_STREAMING

READDIR = constants.FLUX_KVS_READDIR
WATCH, WAITCREATE, STREAM = (
    constants.FLUX_KVS_WATCH,
    constants.FLUX_KVS_WAITCREATE,
    constants.FLUX_KVS_STREAM,
)
UNIQ, APPEND = constants.FLUX_KVS_WATCH_UNIQ, constants.FLUX_KVS_WATCH_APPEND
WATCH_FLAGS = (
    constants.FLUX_KVS_WATCH_FULL | UNIQ | APPEND | constants.FLUX_KVS_WATCH_INITIAL_SENTINEL
)
#: What may be asked for apart from watching.
KINDS = (0, constants.FLUX_KVS_TREEOBJ, READDIR, READDIR | constants.FLUX_KVS_TREEOBJ)


def _key(key):
    """A key as the service takes it: without empty parts."""
    if not key:
        raise failure(errno.EINVAL)
    if ".." in key or key[0] == "." or key[-1] == ".":
        return ".".join(filter(None, key.split("."))) or "."
    return key


def _with_namespace(ns, payload):
    ns = ns or os.environ.get("FLUX_KVS_NAMESPACE")
    if ns:
        payload["namespace"] = ns
    return payload


class Lookup(RPCFuture):
    """The answer of a lookup, or the answers of a watch.

    Attributes:
        key (str): the key
        is_value (bool): whether a value is asked for, once
        cancel_topic (str): the request that ends a watch
    """

    key = None
    is_value = False
    cancel_topic = None

    def arrive(self, msg):
        if msg.errnum:
            # The text names the key, which that of a real KVS does not; and what is below a value is not there (RFC 16).
            number = msg.errnum
            if number == errno.ENOTDIR and self.is_value:
                number = errno.ENOENT
            msg = msg.error_response(number)
        super().arrive(msg)

    def text(self):
        """The value as text."""
        body = self.body()
        if "value" in body:
            return body["value"]
        try:
            return base64.b64decode(body["val"]["data"]).decode("utf-8", "surrogateescape")
        except (KeyError, TypeError, ValueError):
            raise failure(errno.EINVAL) from None


pointer_to("flux_future_t *", Lookup)


@function(
    "flux_future_t *flux_kvs_lookup (flux_t *h, const char *ns, int flags, const char *key)",
    null="ns",
)
def flux_kvs_lookup(h, ns, flags, key):
    watching = flags & WATCH
    kind = flags & ~(WATCH | WATCH_FLAGS | WAITCREATE | STREAM)
    if kind not in KINDS or (flags & WATCH_FLAGS and not watching):
        raise failure(errno.EINVAL)
    future = Lookup()
    future.key = key
    payload = _with_namespace(ns, {"key": _key(key)})
    if not flags:
        future.is_value = True
        return h.send_request(future, "kvs.lookup", None, payload)
    if flags == READDIR:
        return h.send_request(future, "kvs.dir", None, payload)
    if watching and not kind and not flags & constants.FLUX_KVS_WATCH_INITIAL_SENTINEL:
        payload["waitcreate"] = bool(flags & WAITCREATE)
        payload["append"] = bool(flags & APPEND)
        payload["repeat"] = not flags & UNIQ
        future.cancel_topic = "kvs.watch-cancel"
        return h.send_request(future, "kvs.watch", None, payload, flags=RPC_STREAMING)
    payload.setdefault("namespace", "primary")
    payload["flags"] = flags
    streaming = RPC_STREAMING if flags & (WATCH | STREAM) else 0
    topic = "kvs-watch.lookup" if flags & (WATCH | WAITCREATE | STREAM) else "kvs.lookup"
    future.cancel_topic = "kvs-watch.cancel"
    return h.send_request(future, topic, None, payload, flags=streaming)


def _lookup(f):
    if not isinstance(f, Lookup):
        raise failure(errno.EINVAL)
    return f


@function("int flux_kvs_lookup_get (flux_future_t *f, const char **value)", out="value")
def flux_kvs_lookup_get(f):
    return _lookup(f).text() or None


@function("int flux_kvs_lookup_get_dir (flux_future_t *f, const flux_kvsdir_t **dir)", out="dir")
def flux_kvs_lookup_get_dir(f):
    entries = _lookup(f).body().get("entries")
    if not isinstance(entries, list):
        raise failure(errno.EINVAL)
    return Directory(f.key, entries)


@function("int flux_kvs_lookup_cancel (flux_future_t *f)")
def flux_kvs_lookup_cancel(f):
    topic = _lookup(f).cancel_topic
    if topic is None:
        raise failure(errno.EINVAL)
    cancel(f, topic)


def cancel(f, topic):
    """Ask for the end of a stream of responses."""
    send(f.handle, topic, {"matchtag": f.matchtag}, RPC_NORESPONSE).end()


# -- directories -------------------------------------------------------------------------------------------


class Directory:
    """A ``flux_kvsdir_t``: what was in a directory when it was looked up.

    Args:
        key (str): of the directory
        entries (list): [name, kind, target] of what is in it
    """

    def __init__(self, key, entries):
        self.key = key
        self.kinds = {name: kind for name, kind, *_ in entries}

    def key_at(self, name):
        """The key of what is in it by this name."""
        return (
            name if self.key == "." else f"{self.key}{'' if self.key.endswith('.') else '.'}{name}"
        )


class Names:
    """A ``flux_kvsitr_t``: the names in a directory, in order."""

    def __init__(self, directory):
        self.left = iter(sorted(directory.kinds))


pointer_to("flux_kvsdir_t *", Directory)
pointer_to("flux_kvsitr_t *", Names)

functions(
    {
        "int flux_kvsdir_get_size (const flux_kvsdir_t *dir)": lambda dir: len(dir.kinds),
        "bool flux_kvsdir_exists (const flux_kvsdir_t *dir, const char *name)": lambda dir, name: name in dir.kinds,
        "bool flux_kvsdir_isdir (const flux_kvsdir_t *dir, const char *name)":
            lambda dir, name: dir.kinds.get(name) == "dir",
        "const char *flux_kvsdir_key (const flux_kvsdir_t *dir)": lambda dir: dir.key,
        "char *flux_kvsdir_key_at (const flux_kvsdir_t *dir, const char *name)": Directory.key_at,
        "flux_kvsitr_t *flux_kvsitr_create (const flux_kvsdir_t *dir)": Names,
        "flux_kvsdir_t *flux_kvsdir_copy (const flux_kvsdir_t *pointer)": itself,
        "void flux_kvsdir_incref (flux_kvsdir_t *pointer)": nothing,
    }
)  # fmt: skip
functions(
    {
        "const char *flux_kvsitr_next (flux_kvsitr_t *pointer)": lambda itr: itr and next(itr.left, None),
        "void flux_kvsitr_destroy (flux_kvsitr_t *pointer)": nothing,
        "void flux_kvsdir_destroy (flux_kvsdir_t *pointer)": nothing,
    },
    null="pointer",
)  # fmt: skip


# -- transactions ------------------------------------------------------------------------------------------


class Transaction:
    """A ``flux_kvs_txn_t``.

    Attributes:
        ops (list): operations, as kvs.commit takes them
    """

    def __init__(self):
        self.ops = []


pointer_to("flux_kvs_txn_t *", Transaction)


def _change(txn, flags, *op):
    """Add an operation that knows no flags."""
    _no_flags(flags)
    txn.ops.append(list(op))


def _no_flags(flags):
    if flags:
        raise failure(errno.EINVAL)


def _put(txn, flags, key, value):
    if flags & ~constants.FLUX_KVS_APPEND:
        raise failure(errno.EINVAL)
    txn.ops.append(["append" if flags else "put", _key(key), value])


functions(
    {
        "flux_kvs_txn_t *flux_kvs_txn_create (void)": Transaction,
        # What was committed has gone along as it is.
        "int flux_kvs_txn_clear (flux_kvs_txn_t *txn)": lambda txn: setattr(txn, "ops", []),
        "int flux_kvs_txn_mkdir (flux_kvs_txn_t *txn, int flags, const char *key)":
            lambda txn, flags, key: _change(txn, flags, "mkdir", _key(key)),
        "int flux_kvs_txn_unlink (flux_kvs_txn_t *txn, int flags, const char *key)":
            lambda txn, flags, key: _change(txn, flags, "unlink", _key(key)),
    }
)  # fmt: skip
functions(
    {
        "void flux_kvs_txn_destroy (flux_kvs_txn_t *txn)": nothing,
        "bool flux_kvs_txn_is_empty (flux_kvs_txn_t *txn)": lambda txn: txn is None or not txn.ops,
        "int flux_kvs_txn_symlink (flux_kvs_txn_t *t, int flags, const char *key, const char *ns, const char *target)":
            lambda txn, flags, key, ns, target: _change(txn, flags or ns, "symlink", _key(key), _key(target)),
        "int flux_kvs_txn_put (flux_kvs_txn_t *t, int flags, const char *key, const char *value)":
            lambda txn, flags, key, value: _put(txn, flags, key, value or ""),
    },
    null="txn ns value",
)  # fmt: skip


@function(
    "int flux_kvs_txn_put_raw (flux_kvs_txn_t *txn, int flags, const char *key, const void *data, size_t len)",
    null="data",
)
def flux_kvs_txn_put_raw(txn, flags, key, data, len_):
    _put(txn, flags, key, (data or b"")[:len_].decode("utf-8", "surrogateescape"))


COMMIT_FLAGS = (
    constants.FLUX_KVS_NO_MERGE | constants.FLUX_KVS_TXN_COMPACT | constants.FLUX_KVS_SYNC
)


@function(
    "flux_future_t *flux_kvs_commit (flux_t *h, const char *ns, int flags, flux_kvs_txn_t *txn)",
    null="ns",
)
def flux_kvs_commit(h, ns, flags, txn):
    if flags & ~COMMIT_FLAGS:
        raise failure(errno.EINVAL)
    return send(h, "kvs.commit", _with_namespace(ns, {"ops": list(txn.ops)}))


# -- namespaces --------------------------------------------------------------------------------------------


@function(
    "flux_future_t *flux_kvs_namespace_create (flux_t *h, const char *ns, uint32_t owner, int flags)"
)
def flux_kvs_namespace_create(h, ns, owner, flags):
    _no_flags(flags)
    return send(h, "kvs.namespace-create", {"namespace": ns, "owner": owner})


@function("flux_future_t *flux_kvs_namespace_remove (flux_t *h, const char *ns)")
def flux_kvs_namespace_remove(h, ns):
    return send(h, "kvs.namespace-remove", {"namespace": ns})
