"""The key-value store.

Keys are paths with ``.`` between the names.  Values are JSON, or any text
with ``raw``.  What is put, unlinked or made waits in a transaction until it
is committed; a handle has one of its own for the module functions that are
given none.  The namespace is the one that is named, or that of the
environment variable FLUX_KVS_NAMESPACE, or the primary one.
"""

import errno
import os
from collections.abc import MutableMapping

from flux.constants import FLUX_RPC_NORESPONSE, FLUX_RPC_STREAMING
from flux.wrapper import InvalidArguments
from flux_embedded.formats.jsontext import encoder, loads
from flux_embedded.kernel.future import RPC, PlainRPC, unsent
from flux_embedded.kernel.message import strerror

__all__ = [
    "KVSDir",
    "KVSTxn",
    "KVSWatchFuture",
    "WatchImplementation",
    "commit",
    "commit_async",
    "exists",
    "get",
    "get_dir",
    "get_key_direct",
    "isdir",
    "join",
    "kvs_watch_async",
    "namespace_create",
    "namespace_list",
    "namespace_remove",
    "put",
    "put_mkdir",
    "put_symlink",
    "put_unlink",
    "walk",
]


#: as json.dumps writes
_dumps = encoder(", ", ": ")


def _key(key, what="key"):
    """A key (or other name) as it is sent: without empty parts.

    Raises:
        OSError: it is None or empty (EINVAL)
        ValueError: it is no str
    """
    if key is None or key == "":
        raise OSError(errno.EINVAL, strerror(errno.EINVAL))
    if not isinstance(key, str):
        raise InvalidArguments(f"kvs: the {what} must be a string, not {key!r}")
    if ".." in key or key[0] == "." or key[-1] == ".":
        return ".".join(filter(None, key.split("."))) or "."
    return key


def _payload(namespace, **fields):
    """A request's payload, with the namespace it is for."""
    namespace = namespace or os.environ.get("FLUX_KVS_NAMESPACE")
    if namespace:
        fields["namespace"] = namespace
    return fields


class KVSTxn:
    """A transaction: nothing of it is seen until it is committed, then all of it.

    As a context manager it commits on exit.

    Args:
        flux_handle (Flux): handle
        path (str): directory that keys are relative to
        namespace (str): namespace
    """

    def __init__(self, flux_handle=None, path=".", namespace=None):
        self._handle = flux_handle
        self._prefix = "" if path in (".", "") else path.rstrip(".") + "."
        self.namespace = namespace
        self.ops = []

    def _add(self, op, key, *value):
        self.ops.append([op, self._prefix + _key(key), *value])

    def put(self, key, value, raw=False):
        """Set a key: to what JSON makes of `value`, or to the str itself with `raw`; bytes as they are.

        Raises:
            TypeError: `value` is not serialisable
            AttributeError: it is not text with `raw`
        """
        if isinstance(value, bytes):
            value = value.decode("utf-8", "surrogateescape")
        elif raw:
            value.encode("utf-8")
        else:
            value = _dumps(value)
        self._add("put", key, value)

    def unlink(self, key):
        """Remove a key or directory; a missing one is no error."""
        self._add("unlink", key)

    def mkdir(self, key):
        """Make a directory."""
        self._add("mkdir", key)

    def symlink(self, key, target):
        """Make `key` stand for another key."""
        self._add("symlink", key, _key(target, "target"))

    def clear(self):
        """Forget what waits to be committed."""
        self.ops = []

    def commit(self, flags=0):
        """Commit and wait until it is done.

        Raises:
            OSError: it failed and nothing of it took effect
        """
        if self.ops:
            _as_in_c(self.commit_async(flags).get)

    def commit_async(self, flags=0):
        """Commit; returns a Future whose ``get()`` is None.  The transaction may be dropped at once."""
        return _send(self._handle, self.ops, self.namespace)

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, tb):
        self.commit()
        return False


def _send(h, ops, namespace):
    # The object goes along as it is: nothing changes an op once it is in a transaction.
    return h.send_request(unsent(PlainRPC), "kvs.commit", None, _payload(namespace, ops=list(ops)))


def _txn(h, _kvstxn):
    """The transaction given, or the handle's own."""
    if _kvstxn is not None:
        return _kvstxn
    aux = h.task.aux
    if "kvstxn" not in aux:
        aux["kvstxn"] = KVSTxn(h)
    return aux["kvstxn"]


def put(h, key, value, _kvstxn=None, raw=False):
    """Set a key in the next commit; see KVSTxn.put."""
    _txn(h, _kvstxn).put(key, value, raw)


def put_unlink(h, key, _kvstxn=None):
    """Remove a key or directory in the next commit."""
    _txn(h, _kvstxn).unlink(key)


def put_mkdir(h, key, _kvstxn=None):
    """Make a directory in the next commit."""
    _txn(h, _kvstxn).mkdir(key)


def put_symlink(h, key, target, _kvstxn=None):
    """Make a link in the next commit."""
    _txn(h, _kvstxn).symlink(key, target)


def commit_async(h, flags=0, namespace=None, _kvstxn=None):
    """Commit a transaction, or what waits in the handle's own; returns a Future (``get()`` is None)."""
    txn = _txn(h, _kvstxn)
    future = _send(h, txn.ops, namespace if namespace is not None else txn.namespace)
    if _kvstxn is None:
        txn.clear()
    return future


def commit(h, flags=0, namespace=None, _kvstxn=None):
    """Commit and wait until it is done.

    Raises:
        OSError: it failed and nothing of it took effect
    """
    if _txn(h, _kvstxn).ops:
        _as_in_c(commit_async(h, flags, namespace, _kvstxn).get)


def _as_in_c(function):
    """Call a function whose errors have no text of their own."""
    try:
        return function()
    except OSError as exc:
        raise OSError(exc.errno, strerror(exc.errno)) from None


def _request(h, method, key, namespace):
    try:
        return _as_in_c(h.rpc(f"kvs.{method}", _payload(namespace, key=_key(key))).get)
    except NotADirectoryError:
        if method != "lookup":
            raise
        # A value in the way is no directory to look in (RFC 16).
        raise FileNotFoundError(errno.ENOENT, strerror(errno.ENOENT)) from None


def _value(text):
    """A value from its text: parsed if it is JSON, else as str or bytes; None if it is empty."""
    if not text:
        return None
    try:
        return loads(text)
    except ValueError:
        data = text.encode("utf-8", "surrogateescape")
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data


def get_key_direct(h, key, namespace=None):
    """Return the value of a key: parsed if it is JSON, else as str or bytes; None if it is empty.

    Raises:
        FileNotFoundError: there is no such key
        IsADirectoryError: it is a directory
    """
    return _value(_request(h, "lookup", key, namespace)["value"])


def get(h, key, namespace=None):
    """Return the value of a key like `get_key_direct`, or a KVSDir if it is a directory."""
    try:
        return get_key_direct(h, key, namespace)
    except IsADirectoryError:
        return KVSDir(h, key, namespace=namespace)


def get_dir(h, key=".", namespace=None):
    """Return a directory as KVSDir.

    Raises:
        FileNotFoundError: there is no such key
        NotADirectoryError: it is a value
    """
    return KVSDir(h, key, namespace=namespace)


def join(*keys):
    """One key of several, ``.`` between them."""
    return ".".join(keys)


def exists(h, key, namespace=None):
    """Whether a key is there, as value or directory."""
    try:
        _request(h, "lookup", key, namespace)
    except FileNotFoundError:
        return False
    except IsADirectoryError:
        return True
    return True


def isdir(h, key, namespace=None):
    """Whether a key is a directory."""
    try:
        _request(h, "dir", key, namespace)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class KVSDir(MutableMapping):
    """A directory: a mapping of names to values and directories, read when it is asked.

    What is set or removed in it waits in a transaction of its own for `commit`, or for the end of
    the block that it is the context manager of.

    Args:
        flux_handle (Flux): handle
        path (str): key of the directory
        namespace (str): namespace

    Raises:
        ValueError: no handle
        FileNotFoundError, NotADirectoryError: there is no such directory
    """

    def __init__(self, flux_handle=None, path=".", namespace=None):
        if flux_handle is None:
            raise ValueError("a KVSDir needs a handle")
        self._handle = flux_handle
        self.path = path
        self.namespace = namespace
        self.kvstxn = KVSTxn(flux_handle, path, namespace)
        self.entries()

    def entries(self):
        return _request(self._handle, "dir", self.path, self.namespace)["entries"]

    def key_at(self, name):
        """The full key of a name in here."""
        if not isinstance(name, str):
            raise InvalidArguments(f"kvs: the name must be a string, not {name!r}")
        return name if self.path == "." else f"{self.path}.{name}"

    def files(self):
        """Yield the names of values and links, in order."""
        return (name for name, kind, _ in self.entries() if kind != "dir")

    def directories(self):
        """Yield the names of directories, in order."""
        return (name for name, kind, _ in self.entries() if kind == "dir")

    def list_all(self):
        """The names of values and links, and those of directories: two lists."""
        return list(self.files()), list(self.directories())

    def exists(self, name):
        return exists(self._handle, self.key_at(name), self.namespace)

    def __getitem__(self, name):
        try:
            return get(self._handle, self.key_at(name), self.namespace)
        except FileNotFoundError as exc:
            raise KeyError(f"{name} not found under directory {self.key_at('')}") from exc

    def __setitem__(self, name, value):
        self.kvstxn.put(name, value)

    def __delitem__(self, name):
        self.kvstxn.unlink(name)

    def fill(self, contents):
        """Set all that is in a dict in the next `commit`; the names may be keys.

        Raises:
            ValueError: contents is None
        """
        if contents is None:
            raise ValueError("contents must be non-None")
        self.update(contents)

    def mkdir(self, name, contents=None):
        """Make a directory at once.

        Raises:
            FileNotFoundError: there are contents to put in it: the bindings of a real Flux look for
                the new directory in another place and fail, too.  Use `fill`.
        """
        self.kvstxn.mkdir(name)
        self.commit()
        if contents is not None:
            raise FileNotFoundError(errno.ENOENT, strerror(errno.ENOENT))

    def commit(self, flags=0):
        """Commit what was set and removed, and wait until it is done."""
        try:
            self.kvstxn.commit(flags)
        finally:
            self.kvstxn.clear()

    def commit_async(self, flags=0):
        """Commit; returns a Future whose ``get()`` is None."""
        future = self.kvstxn.commit_async(flags)
        self.kvstxn.clear()
        return future

    def __contains__(self, name):
        return self.exists(name)

    def __iter__(self):
        return iter([name for name, _, _ in self.entries()])

    def __len__(self):
        return len(self.entries())

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, tb):
        self.commit()
        return False


def walk(directory, topdown=False, flux_handle=None, namespace=None):
    """Yield (path, names of directories, names of values) of a directory and all below it.

    Paths are relative to the directory, which is "" itself.

    Args:
        directory (str or KVSDir): where to begin
        topdown (bool): a directory before those in it; else after
        flux_handle (Flux): handle, needed for a str
        namespace (str): namespace

    Raises:
        ValueError: a str without a handle
    """
    if not isinstance(directory, KVSDir):
        if flux_handle is None:
            raise ValueError("If directory is a key, flux_handle must be specified")
        directory = KVSDir(flux_handle, directory, namespace=namespace)
    return _walk(directory, "", topdown)


def _walk(directory, path, topdown):
    files, names = directory.list_all()
    if topdown:
        yield path, names, files
    for name in names:
        yield from _walk(directory[name], f"{path}.{name}" if path else name, topdown)
    if not topdown:
        yield path, names, files


def namespace_create(h, namespace, owner=None, flags=0):
    """Make a namespace; FileExistsError if there is one of that name."""
    payload = {"namespace": _key(namespace, "namespace")}
    if owner is not None:
        payload["owner"] = owner
    _as_in_c(h.rpc("kvs.namespace-create", payload).get)


def namespace_remove(h, namespace):
    """Remove a namespace; a missing one is no error."""
    payload = {"namespace": _key(namespace, "namespace")}
    _as_in_c(h.rpc("kvs.namespace-remove", payload).get)


def namespace_list(h):
    """Return the names of all namespaces."""
    return [entry["namespace"] for entry in h.rpc("kvs.namespace-list").get()["namespaces"]]


class WatchImplementation(RPC):
    """A stream of values; a subclass says what a response holds.

    Attributes:
        cancel_topic (str): the request that ends it
    """

    cancel_topic = ""

    def watch_get(self, response):
        """Return the value in a response's payload."""
        raise NotImplementedError

    def get(self, autoreset=True):
        """Wait for the next value and return it; None at the end of the stream.

        Args:
            autoreset (bool): be ready for the one after it
        """
        try:
            value = self.watch_get(super().get())
        except OSError as exc:
            if exc.errno == errno.ENODATA:
                return None
            raise
        if autoreset:
            self.reset()
        return value

    def cancel(self, stop=False):
        """Ask for the end of the stream.

        Args:
            stop (bool): and call back no more
        """
        payload = {"matchtag": self.matchtag}
        self.handle.rpc(self.cancel_topic, payload, flags=FLUX_RPC_NORESPONSE)
        if stop:
            self.stop()


class KVSWatchFuture(WatchImplementation):
    """The values of a key."""

    cancel_topic = "kvs.watch-cancel"

    def watch_get(self, response):
        return _value(response["value"])


def kvs_watch_async(h, key, namespace=None, waitcreate=False, uniq=False, full=False):
    """Watch a key; returns a KVSWatchFuture.

    Args:
        h (Flux): handle
        key (str): the key
        namespace (str): namespace
        waitcreate (bool): wait for a key that is not there yet
        uniq (bool): leave out values that are as the one before
        full (bool): accepted for the sake of the signature: directories above the key are watched anyway
    """
    payload = _payload(namespace, key=_key(key), waitcreate=waitcreate, repeat=not uniq)
    return KVSWatchFuture(h, "kvs.watch", payload, flags=FLUX_RPC_STREAMING)
