"""The key-value store.

Keys are paths with ``.`` between the names.  Values are JSON, or any text
with ``raw``.  What is put, unlinked or made waits in a transaction until it
is committed; a handle has one of its own for the module functions that are
given none.
"""

import errno
from collections.abc import Mapping

from flux_embedded.formats.jsontext import encoder, loads
from flux_embedded.kernel.future import PlainRPC
from flux_embedded.kernel.message import NODEID_ANY, strerror

__all__ = [
    "KVSDir",
    "KVSTxn",
    "commit",
    "commit_async",
    "exists",
    "get",
    "get_dir",
    "get_key_direct",
    "isdir",
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


def _key(key):
    if not isinstance(key, str):
        raise TypeError(f"kvs key {key!r} is not a string")
    return key


class KVSTxn:
    """A transaction: nothing of it is seen until it is committed, then all of it.

    As a context manager it commits on exit, unless an exception leaves the block.

    Args:
        h (Flux): handle
        path (str): directory that keys are relative to
        namespace (str): namespace; default: primary
    """

    def __init__(self, h, path=".", namespace=None):
        self._handle = h
        self._prefix = "" if path in (".", "") else path.rstrip(".") + "."
        self.namespace = namespace
        self.ops = []

    def put(self, key, value, raw=False):
        """Set a key: to what JSON makes of `value`, or to the str itself with `raw`; bytes as they are.

        Raises:
            TypeError: `value` is not serialisable, or not text with `raw`
        """
        if isinstance(value, bytes):
            value = value.decode("utf-8", "surrogateescape")
        elif not raw:
            value = _dumps(value)
        elif not isinstance(value, str):
            raise TypeError(f"kvs value {value!r} is neither str nor bytes")
        self.ops.append(["put", self._prefix + _key(key), value])

    def unlink(self, key):
        """Remove a key or directory; a missing one is no error."""
        self.ops.append(["unlink", self._prefix + _key(key)])

    def mkdir(self, key):
        """Make a directory."""
        self.ops.append(["mkdir", self._prefix + _key(key)])

    def symlink(self, key, target):
        """Make `key` stand for another key."""
        self.ops.append(["symlink", self._prefix + _key(key), _key(target)])

    def clear(self):
        """Forget what waits to be committed."""
        self.ops = []

    def commit(self, flags=0):
        """Commit and wait until it is done.

        Raises:
            OSError: it failed and nothing of it took effect
        """
        self.commit_async(flags).get()

    def commit_async(self, flags=0):
        """Commit; returns a Future whose ``get()`` is None.  The transaction may be dropped at once."""
        return _send(self._handle, self.ops, self.namespace)

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, tb):
        if exc_type is None:
            self.commit()


def _send(h, ops, namespace):
    payload = {"ops": list(ops)}
    if namespace is not None:
        payload["namespace"] = namespace
    # The object goes along as it is: nothing changes an op once it is in a transaction.
    return h.send_rpc(PlainRPC, "kvs.commit", None, payload, NODEID_ANY, 0)


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
    commit_async(h, flags, namespace, _kvstxn).get()


def _request(h, method, key, namespace, **options):
    payload = {"key": _key(key), **options}
    if namespace is not None:
        payload["namespace"] = namespace
    try:
        return h.rpc(f"kvs.{method}", payload).get()
    except OSError as exc:
        # A value in the way is no directory to look in (RFC 16).
        number = errno.ENOENT if exc.errno == errno.ENOTDIR and method == "lookup" else exc.errno
        raise OSError(number, strerror(number)) from None


def get_key_direct(h, key, namespace=None):
    """Return the value of a key: parsed if it is JSON, else as str or bytes; None if it is empty.

    Raises:
        FileNotFoundError: there is no such key
        IsADirectoryError: it is a directory
    """
    text = _request(h, "lookup", key, namespace)["value"]
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


def get(h, key, namespace=None):
    """Return the value of a key like `get_key_direct`, or a KVSDir if it is a directory."""
    try:
        return get_key_direct(h, key, namespace)
    except IsADirectoryError:
        return KVSDir(h, key, namespace)


def get_dir(h, path=".", namespace=None):
    """Return a directory as KVSDir.

    Raises:
        FileNotFoundError: there is no such key
        NotADirectoryError: it is a value
    """
    directory = KVSDir(h, path, namespace)
    directory.entries()
    return directory


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


class KVSDir(Mapping):
    """A directory: a mapping of names to values and directories, read when it is asked.

    Args:
        h (Flux): handle
        path (str): key of the directory
        namespace (str): namespace; default: primary
    """

    def __init__(self, h, path=".", namespace=None):
        self._handle = h
        self.path = path
        self.namespace = namespace

    def entries(self):
        return _request(self._handle, "dir", self.path, self.namespace)["entries"]

    def key_at(self, name):
        """The full key of a name in here."""
        return name if self.path == "." else f"{self.path}.{name}"

    def files(self):
        """The names of values and links, in order."""
        return [name for name, kind, _ in self.entries() if kind != "dir"]

    def directories(self):
        """The names of directories, in order."""
        return [name for name, kind, _ in self.entries() if kind == "dir"]

    def exists(self, name):
        return exists(self._handle, self.key_at(name), self.namespace)

    def __getitem__(self, name):
        try:
            return get(self._handle, self.key_at(name), self.namespace)
        except FileNotFoundError as exc:
            raise KeyError(f"{name} not found under directory {self.key_at('')}") from exc

    def __setitem__(self, name, value):
        """Set a value in the next `commit`."""
        put(self._handle, self.key_at(name), value)

    def __delitem__(self, name):
        """Remove a value or directory in the next `commit`."""
        put_unlink(self._handle, self.key_at(name))

    def mkdir(self, name, contents=None):
        """Make a directory, with these values in it, in the next `commit`."""
        put_mkdir(self._handle, self.key_at(name))
        if contents is not None:
            KVSDir(self._handle, self.key_at(name), self.namespace).fill(contents)

    def fill(self, contents):
        """Set all that is in a dict in the next `commit`."""
        for name, value in contents.items():
            self[name] = value

    def commit(self, flags=0):
        """Commit what waits in the handle's own transaction."""
        commit(self._handle, flags, self.namespace)

    def __contains__(self, name):
        return self.exists(name)

    def __iter__(self):
        return iter([name for name, _, _ in self.entries()])

    def __len__(self):
        return len(self.entries())


def walk(directory, flux_handle=None, topdown=False, namespace=None):
    """Yield (path, names of directories, names of values) of a directory and all below it.

    Args:
        directory (str or KVSDir): where to begin
        flux_handle (Flux): handle, needed for a str
        topdown (bool): a directory before those in it; else after
        namespace (str): namespace; default: primary

    Raises:
        ValueError: a str without a handle
    """
    if not isinstance(directory, KVSDir):
        if flux_handle is None:
            raise ValueError("If directory is a key, flux_handle must be specified")
        directory = KVSDir(flux_handle, directory, namespace)
    names = directory.directories()
    here = (directory.path, names, directory.files())
    if topdown:
        yield here
    for name in names:
        yield from walk(directory[name], topdown=topdown)
    if not topdown:
        yield here


def namespace_create(h, name, owner=None, flags=0):
    """Make a namespace; FileExistsError if there is one of that name."""
    payload = {"namespace": name} if owner is None else {"namespace": name, "owner": owner}
    h.rpc("kvs.namespace-create", payload).get()


def namespace_remove(h, name):
    """Remove a namespace."""
    h.rpc("kvs.namespace-remove", {"namespace": name}).get()


def namespace_list(h):
    """Return the names of all namespaces."""
    return [entry["namespace"] for entry in h.rpc("kvs.namespace-list").get()["namespaces"]]
