# SPDX-License-Identifier: LGPL-3.0-or-later
"""The key-value store of the instance, service ``kvs``.

It is a tree of directories; a key is its path with ``.`` between the names (``job.0000.0005.dc00.0000.R``).  Values are
text.  Everything is kept in memory: it ends with the instance.  Commits are applied one after the other, each whole or not
at all, in the order in which they arrived (RFC 16: commit order is visible order).

`flux_embedded.broker.instance.BrokerContext.kvs` is the tree, for services that read and watch it. All methods are for the instance
owner only.  Keys are non-empty strings without empty components (EINVAL otherwise); ``.`` alone is the root directory.

=======  ===========================================================================================================
method   payload -> response
=======  ===========================================================================================================
commit   ``{ops: [OP, ...]}`` -> ``{rootseq}``, how many commits there were. The ops are applied in order and become
         visible together. Missing directories on the way are made; a value in the way is replaced by a directory.

         - ``["put", KEY, TEXT]``
         - ``["append", KEY, TEXT]``: to the end of the value, which is created if it is missing (EISDIR on a directory)
         - ``["unlink", KEY]``: value or whole directory; a missing key is not an error
         - ``["mkdir", KEY]``: an existing directory is kept
lookup   ``{key}`` -> ``{value: TEXT}``. Missing: ENOENT, a directory: EISDIR
readdir  ``{key}`` -> ``{names: {NAME: IS_DIRECTORY}}``, in order of name. Missing: ENOENT, a value: ENOTDIR
=======  ===========================================================================================================
"""

import errno
import os

from flux_engine.kernel.service import Malformed, Service, request

MAX_DEPTH = 200
_MISSING = object()
_APPENDED = object()


class Tree:
    """Directories are dicts; values are str, or a list of str as long as they are only appended to, not read.

    Attributes:
        root (dict)
        commits (int): number of commits so far
    """

    def __init__(self):
        self.root = {}
        self.commits = 0
        self._watchers = []  # (directory, function)
        self._apply = {
            "put": self._put,
            "append": self._append,
            "unlink": self._unlink,
            "mkdir": self._mkdir,
        }

    def find(self, key):
        """The value (str), directory (dict) or None at `key`."""
        if key == ".":
            return self.root
        *parts, name = split(key)
        directory = self.root
        for part in parts:
            directory = directory.get(part)
            if type(directory) is not dict:
                return None
        child = directory.get(name)
        if type(child) is list:
            child = directory[name] = "".join(child)
        return child

    def value(self, key):
        """The value at `key`; an invalid key counts as missing."""
        value = self._existing(key)
        if type(value) is dict:
            raise error(errno.EISDIR)
        return value

    def directory(self, key):
        """The directory at `key`; an invalid key counts as missing."""
        value = self._existing(key)
        if type(value) is not dict:
            raise error(errno.ENOTDIR)
        return value

    def _existing(self, key):
        try:
            value = self.find(key)
        except OSError as exc:
            raise error(errno.ENOENT) if exc.errno == errno.EINVAL else exc from None
        if value is None:
            raise error(errno.ENOENT)
        return value

    # -- watching --------------------------------------------------------------------------------

    def watch(self, directory, function):
        """Call ``function()`` after each commit that may have changed something in a directory."""
        self._watchers.append((directory, function))

    def unwatch(self, directory, function):
        """Undo `watch`."""
        self._watchers.remove((directory, function))

    def _tell(self, keys):
        for directory, function in list(self._watchers):
            if any(key.startswith(directory) or directory.startswith(key) for key in keys):
                function()

    # -- writing ---------------------------------------------------------------------------------

    def commit(self, ops):
        """Apply all operations, as in the payload of a commit, or, if one fails, none.

        Raises:
            OSError: an operation failed
            TypeError, KeyError, IndexError: it is malformed
        """
        undo = []
        try:
            for op in ops:
                self._apply[op[0]](undo, *op[1:])
        except BaseException:
            for where, name, old in reversed(undo):
                if name is _APPENDED:
                    where.pop()
                elif old is _MISSING:
                    del where[name]
                else:
                    where[name] = old
            raise
        self.commits += 1
        if self._watchers:
            self._tell([op[1] for op in ops])

    def _parent(self, undo, key):
        """The (directory, name) for a write to `key`; missing directories are made."""
        parts = split(key)
        name = parts.pop()
        directory = self.root
        for part in parts:
            child = directory.get(part)
            if type(child) is not dict:
                undo.append((directory, part, _MISSING if child is None else child))
                child = directory[part] = {}
            directory = child
        return directory, name

    def _put(self, undo, key, text):
        if type(text) is not str:
            raise OSError(errno.EINVAL, f"{key}: value must be text")
        directory, name = self._parent(undo, key)
        undo.append((directory, name, directory.get(name, _MISSING)))
        directory[name] = text

    def _append(self, undo, key, text):
        if type(text) is not str:
            raise OSError(errno.EINVAL, f"{key}: value must be text")
        directory, name = self._parent(undo, key)
        old = directory.get(name)
        if type(old) is list:
            undo.append((old, _APPENDED, None))
            old.append(text)
        elif old is None:
            undo.append((directory, name, _MISSING))
            directory[name] = text
        elif type(old) is dict:
            raise error(errno.EISDIR)
        else:
            undo.append((directory, name, old))
            directory[name] = [old, text]

    def _unlink(self, undo, key):
        above, _, name = key.rpartition(".")
        split(key)
        directory = self.find(above or ".")
        if type(directory) is dict and name in directory:
            undo.append((directory, name, directory.pop(name)))

    def _mkdir(self, undo, key):
        directory, name = self._parent(undo, key)
        old = directory.get(name, _MISSING)
        if type(old) is not dict:
            undo.append((directory, name, old))
            directory[name] = {}


def entries(directory, prefix):
    """Yield [path, type, text or None] for each entry below a directory, in order of name."""
    for name in sorted(directory):
        child = directory[name]
        if type(child) is dict:
            yield [prefix + name, "dir", None]
            yield from entries(child, f"{prefix}{name}.")
        else:
            yield [prefix + name, "val", "".join(child)]


def split(key):
    """Return the components of a key; OSError EINVAL if it is invalid."""
    if type(key) is not str:
        raise Malformed("kvs: 'key' must be a string")
    parts = key.split(".")
    if "" in parts or len(parts) > MAX_DEPTH:
        raise OSError(errno.EINVAL, f"{key!r} is not a valid key")
    return parts


def error(errnum):
    """Return the OSError for an errno; its text does not repeat the key."""
    return OSError(errnum, os.strerror(errnum))


class Kvs(Service):
    name = "kvs"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.tree = ctx.kvs = Tree()

    @request("commit")
    def commit(self, msg):
        try:
            self.tree.commit(msg.body["ops"])
        except (KeyError, TypeError, AttributeError, IndexError) as exc:
            raise Malformed(f"kvs.commit: {exc!r}") from None
        return {"rootseq": self.tree.commits}

    def stop(self):
        self.ctx.kvs = Tree()

    @request("lookup")
    def lookup(self, msg):
        return {"value": self.tree.value((msg.body or {}).get("key"))}

    @request("readdir")
    def readdir(self, msg):
        directory = self.tree.directory((msg.body or {}).get("key"))
        names = {name: type(directory[name]) is dict for name in sorted(directory)}
        return {"names": names}
