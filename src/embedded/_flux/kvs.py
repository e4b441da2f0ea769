"""The key-value store: lookups and watches, directories, transactions.

The embedded KVS has requests of its own (`flux_embedded.services.kvs`): values are text there, not objects of RFC 11.
"""

import base64
import errno
import os

from _flux import constants
from _flux.cdata import NULL, bytes_of
from _flux.ffi import pointer_to
from _flux.function import failure, function
from _flux.futures import RPCFuture, send
from flux_embedded.kernel.future import RPC_NORESPONSE, RPC_STREAMING

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


@function("int flux_kvs_lookup_get (flux_future_t *f, const char **value)", null="value")
def flux_kvs_lookup_get(f, value):
    text = _lookup(f).text()
    if value is not None:
        value[0] = bytes_of(text) if text else NULL
    return 0


@function(
    "int flux_kvs_lookup_get_raw (flux_future_t *f, const void **data, size_t *len)",
    null="data len",
)
def flux_kvs_lookup_get_raw(f, data, len_):
    value = bytes_of(_lookup(f).text())
    if data is not None:
        data[0] = value or NULL
    if len_ is not None:
        len_[0] = len(value)
    return 0


@function("int flux_kvs_lookup_get_dir (flux_future_t *f, const flux_kvsdir_t **dir)", null="dir")
def flux_kvs_lookup_get_dir(f, dir):
    entries = _lookup(f).body().get("entries")
    if not isinstance(entries, list):
        raise failure(errno.EINVAL)
    if dir is not None:
        dir[0] = Directory(f.key, entries)
    return 0


@function("const char *flux_kvs_lookup_get_key (flux_future_t *f)")
def flux_kvs_lookup_get_key(f):
    return bytes_of(_lookup(f).key)


@function("int flux_kvs_lookup_cancel (flux_future_t *f)")
def flux_kvs_lookup_cancel(f):
    topic = _lookup(f).cancel_topic
    if topic is None:
        raise failure(errno.EINVAL)
    cancel(f, topic)
    return 0


def cancel(f, topic):
    """Ask for the end of a stream of responses."""
    send(f.h, topic, {"matchtag": f.matchtag}, RPC_NORESPONSE).end()


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


class Iterator:
    """A ``flux_kvsitr_t``: the names in a directory, in order."""

    def __init__(self, directory):
        self.names = sorted(directory.kinds)
        self.at = 0


pointer_to("flux_kvsdir_t *", Directory)
pointer_to("flux_kvsitr_t *", Iterator)


@function("flux_kvsdir_t *flux_kvsdir_copy (const flux_kvsdir_t *dir)")
def flux_kvsdir_copy(dir):
    return dir


@function("void flux_kvsdir_incref (flux_kvsdir_t *dir)")
def flux_kvsdir_incref(dir):
    pass


@function("void flux_kvsdir_destroy (flux_kvsdir_t *dir)", null="dir")
def flux_kvsdir_destroy(dir):
    pass


@function("int flux_kvsdir_get_size (const flux_kvsdir_t *dir)")
def flux_kvsdir_get_size(dir):
    return len(dir.kinds)


@function("bool flux_kvsdir_exists (const flux_kvsdir_t *dir, const char *name)")
def flux_kvsdir_exists(dir, name):
    return name in dir.kinds


@function("bool flux_kvsdir_isdir (const flux_kvsdir_t *dir, const char *name)")
def flux_kvsdir_isdir(dir, name):
    return dir.kinds.get(name) == "dir"


@function("bool flux_kvsdir_issymlink (const flux_kvsdir_t *dir, const char *name)")
def flux_kvsdir_issymlink(dir, name):
    return dir.kinds.get(name) == "symlink"


@function("const char *flux_kvsdir_key (const flux_kvsdir_t *dir)")
def flux_kvsdir_key(dir):
    return bytes_of(dir.key)


@function("char *flux_kvsdir_key_at (const flux_kvsdir_t *dir, const char *key)")
def flux_kvsdir_key_at(dir, key):
    if dir.key == ".":
        return bytes_of(key)
    point = "" if dir.key.endswith(".") else "."
    return bytes_of(f"{dir.key}{point}{key}")


@function("flux_kvsitr_t *flux_kvsitr_create (const flux_kvsdir_t *dir)")
def flux_kvsitr_create(dir):
    return Iterator(dir)


@function("void flux_kvsitr_destroy (flux_kvsitr_t *itr)", null="itr")
def flux_kvsitr_destroy(itr):
    pass


@function("const char *flux_kvsitr_next (flux_kvsitr_t *itr)", null="itr")
def flux_kvsitr_next(itr):
    if itr is None or itr.at >= len(itr.names):
        return None
    itr.at += 1
    return bytes_of(itr.names[itr.at - 1])


@function("void flux_kvsitr_rewind (flux_kvsitr_t *itr)")
def flux_kvsitr_rewind(itr):
    itr.at = 0


# -- transactions ------------------------------------------------------------------------------------------


class Transaction:
    """A ``flux_kvs_txn_t``.

    Attributes:
        ops (list): operations, as kvs.commit takes them
    """

    def __init__(self):
        self.ops = []


pointer_to("flux_kvs_txn_t *", Transaction)


@function("flux_kvs_txn_t *flux_kvs_txn_create (void)")
def flux_kvs_txn_create():
    return Transaction()


@function("void flux_kvs_txn_destroy (flux_kvs_txn_t *txn)", null="txn")
def flux_kvs_txn_destroy(txn):
    pass


@function(
    "int flux_kvs_txn_put (flux_kvs_txn_t *txn, int flags, const char *key, const char *value)",
    null="value",
)
def flux_kvs_txn_put(txn, flags, key, value):
    txn.ops.append([_put(flags), _key(key), value or ""])
    return 0


@function(
    "int flux_kvs_txn_put_raw (flux_kvs_txn_t *txn, int flags, const char *key, const void *data, size_t len)",
    null="data",
)
def flux_kvs_txn_put_raw(txn, flags, key, data, len_):
    value = (data or b"")[:len_].decode("utf-8", "surrogateescape")
    txn.ops.append([_put(flags), _key(key), value])
    return 0


def _put(flags):
    if flags & ~constants.FLUX_KVS_APPEND:
        raise failure(errno.EINVAL)
    return "append" if flags else "put"


def _no_flags(flags):
    if flags:
        raise failure(errno.EINVAL)


@function("int flux_kvs_txn_mkdir (flux_kvs_txn_t *txn, int flags, const char *key)")
def flux_kvs_txn_mkdir(txn, flags, key):
    _no_flags(flags)
    txn.ops.append(["mkdir", _key(key)])
    return 0


@function("int flux_kvs_txn_unlink (flux_kvs_txn_t *txn, int flags, const char *key)")
def flux_kvs_txn_unlink(txn, flags, key):
    _no_flags(flags)
    txn.ops.append(["unlink", _key(key)])
    return 0


@function(
    "int flux_kvs_txn_symlink (flux_kvs_txn_t *txn, int flags, const char *key, const char *ns, const char *target)",
    null="ns",
)
def flux_kvs_txn_symlink(txn, flags, key, ns, target):
    if flags or ns:
        raise failure(errno.EINVAL)
    txn.ops.append(["symlink", _key(key), _key(target)])
    return 0


@function("int flux_kvs_txn_clear (flux_kvs_txn_t *txn)")
def flux_kvs_txn_clear(txn):
    # What was committed has gone along as it is.
    txn.ops = []
    return 0


@function("bool flux_kvs_txn_is_empty (flux_kvs_txn_t *txn)", null="txn")
def flux_kvs_txn_is_empty(txn):
    return txn is None or not txn.ops


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
