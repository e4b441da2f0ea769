# SPDX-License-Identifier: LGPL-3.0-or-later
"""The key-value store: lookups and transactions.

The embedded KVS has requests of its own (`flux_embedded.services.kvs`): values are text there, not objects of RFC 11.
"""

import errno

from _flux import constants
from _flux.ffi import pointer_to
from _flux.function import failure, function, functions, itself, nothing
from _flux.futures import RPCFuture, send
from flux_engine.kernel.future import RPC_NORESPONSE


def _key(key):
    """A key in the form of the service: without empty parts."""
    if not key:
        raise failure(errno.EINVAL)
    if ".." in key or key[0] == "." or key[-1] == ".":
        return ".".join(filter(None, key.split("."))) or "."
    return key


def _check_namespace(ns):
    """Raise OSError (ENOTSUP) for another namespace than the only one."""
    if ns not in (None, "primary"):
        raise failure(errno.ENOTSUP)


class Lookup(RPCFuture):
    """The answer of a lookup."""


pointer_to("flux_future_t *", Lookup)


@function
def flux_kvs_lookup(h, ns, flags, key):
    """flux_future_t *flux_kvs_lookup (flux_t *h, opt const char *ns, int flags, const char *key)"""
    _check_namespace(ns)
    if flags & ~constants.FLUX_KVS_READDIR:
        raise failure(errno.EINVAL)
    key = _key(key)
    future = send(h, "kvs.readdir" if flags else "kvs.lookup", {"key": key}, cls=Lookup)
    future.key = key
    return future


@function
def flux_kvs_lookup_get(f):
    """int flux_kvs_lookup_get (flux_future_t *f, out const char **value)"""
    if not isinstance(f, Lookup):
        raise failure(errno.EINVAL)
    return f.field("value", str) or None


class Directory(dict):
    """A ``flux_kvsdir_t``: the names in a directory, in order, and whether each is a directory; and its key."""

    def __init__(self, names, key):
        super().__init__(names)
        self.key = key


pointer_to("flux_kvsdir_t *", Directory)


@function
def flux_kvs_lookup_get_dir(f):
    """int flux_kvs_lookup_get_dir (flux_future_t *f, out const flux_kvsdir_t **dirp)"""
    if not isinstance(f, Lookup):
        raise failure(errno.EINVAL)
    return Directory(f.field("names", dict), f.key)


pointer_to("flux_kvsitr_t *", type(iter({})))

functions(
    {
        "flux_kvsdir_t *flux_kvsdir_copy (const flux_kvsdir_t *dir)": itself,
        "int flux_kvsdir_get_size (const flux_kvsdir_t *dir)": len,
        "bool flux_kvsdir_isdir (const flux_kvsdir_t *dir, const char *name)": lambda directory, name: (
            directory.get(name, False)
        ),
        "char *flux_kvsdir_key_at (const flux_kvsdir_t *dir, const char *name)": lambda directory, name: (
            name if directory.key == "." else f"{directory.key}.{name}"
        ),
        "flux_kvsitr_t *flux_kvsitr_create (const flux_kvsdir_t *dir)": iter,
        "const char *flux_kvsitr_next (flux_kvsitr_t *itr)": lambda names: next(names, None),
        "void flux_kvsdir_destroy (opt flux_kvsdir_t *dir)": nothing,
        "void flux_kvsitr_destroy (opt flux_kvsitr_t *itr)": nothing,
    }
)


def cancel(f, topic):
    """Cancel a stream of responses. It has ended if its connection is closed."""
    if not f.handle.task.closed:
        send(f.handle, topic, {"matchtag": f.matchtag}, RPC_NORESPONSE).end()


# -- transactions ------------------------------------------------------------------------------------------


class Transaction:
    """A ``flux_kvs_txn_t``: operations, as kvs.commit takes them."""

    def __init__(self):
        self.ops = []


pointer_to("flux_kvs_txn_t *", Transaction)


def _change(txn, flags, *op):
    """Add an operation that supports no flags."""
    if flags:
        raise failure(errno.EINVAL)
    txn.ops.append(list(op))


functions(
    {
        "flux_kvs_txn_t *flux_kvs_txn_create (void)": Transaction,
        # A commit may still refer to the former list.
        "int flux_kvs_txn_clear (flux_kvs_txn_t *txn)": lambda txn: setattr(txn, "ops", []),
        "int flux_kvs_txn_mkdir (flux_kvs_txn_t *txn, int flags, const char *key)":
            lambda txn, flags, key: _change(txn, flags, "mkdir", _key(key)),
        "int flux_kvs_txn_unlink (flux_kvs_txn_t *txn, int flags, const char *key)":
            lambda txn, flags, key: _change(txn, flags, "unlink", _key(key)),
        "void flux_kvs_txn_destroy (opt flux_kvs_txn_t *txn)": nothing,
        "bool flux_kvs_txn_is_empty (opt flux_kvs_txn_t *txn)": lambda txn: txn is None or not txn.ops,
        "int flux_kvs_txn_put (flux_kvs_txn_t *t, int flags, const char *key, opt const char *value)":
            lambda txn, flags, key, value: _change(txn, flags, "put", _key(key), value or ""),
    }
)  # fmt: skip


@function
def flux_kvs_txn_put_raw(txn, flags, key, data, len_):
    """int flux_kvs_txn_put_raw (flux_kvs_txn_t *txn, int flags, const char *key, opt const void *data, size_t len)"""
    text = (data or b"")[:len_].decode("utf-8", "surrogateescape")
    _change(txn, flags, "put", _key(key), text)


@function
def flux_kvs_commit(h, ns, flags, txn):
    """flux_future_t *flux_kvs_commit (flux_t *h, opt const char *ns, int flags, flux_kvs_txn_t *txn)"""
    if flags & ~(
        constants.FLUX_KVS_NO_MERGE | constants.FLUX_KVS_TXN_COMPACT | constants.FLUX_KVS_SYNC
    ):
        raise failure(errno.EINVAL)
    _check_namespace(ns)
    return send(h, "kvs.commit", {"ops": list(txn.ops)})
