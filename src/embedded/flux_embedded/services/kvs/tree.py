# SPDX-License-Identifier: LGPL-3.0-or-later
"""The tree of the KVS: directories and values, and whole commits to it."""

import errno
import os

from flux_engine.kernel.service import Malformed

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
        self._watchers = {}  # key -> functions
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
        try:
            value = self.find(key)
        except OSError as exc:
            raise error(errno.ENOENT) if exc.errno == errno.EINVAL else exc from None
        if value is None:
            raise error(errno.ENOENT)
        if type(value) is dict:
            raise error(errno.EISDIR)
        return value

    # -- watching --------------------------------------------------------------------------------

    def watch(self, key, function):
        """Call ``function()`` after each commit that changed the value of `key`."""
        self._watchers.setdefault(key, []).append(function)

    def unwatch(self, key, function):
        """Undo `watch`."""
        self._watchers[key].remove(function)
        if not self._watchers[key]:
            del self._watchers[key]

    def _tell(self, touched):
        """Call the watchers of the keys that a commit has changed."""
        for key, below in touched:
            functions = list(self._watchers.get(key, ()))
            if below:
                inside = [name for name in self._watchers if name.startswith(key + ".")]
                functions += [function for name in inside for function in self._watchers[name]]
            for function in functions:
                function()

    # -- writing ---------------------------------------------------------------------------------

    def commit(self, ops):
        """Apply all operations, as in the payload of a commit, or, if one fails, none.

        Raises:
            OSError: an operation failed
            TypeError, KeyError, IndexError: it is malformed
        """
        undo = []
        touched = []  # (key, whether keys below it changed too) of each change
        try:
            for op in ops:
                self._apply[op[0]](undo, touched, *op[1:])
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
            self._tell(touched)

    def _parent(self, undo, touched, key):
        """The (directory, name) for a write to `key`; missing directories are made."""
        parts = split(key)
        name = parts.pop()
        directory = self.root
        for number, part in enumerate(parts):
            child = directory.get(part)
            if type(child) is not dict:
                undo.append((directory, part, _MISSING if child is None else child))
                if child is not None:
                    touched.append((".".join(parts[: number + 1]), True))
                child = directory[part] = {}
            directory = child
        return directory, name

    def _put(self, undo, touched, key, text):
        if type(text) is not str:
            raise OSError(errno.EINVAL, f"{key}: value must be text")
        directory, name = self._parent(undo, touched, key)
        old = directory.get(name, _MISSING)
        undo.append((directory, name, old))
        directory[name] = text
        touched.append((key, type(old) is dict))

    def _append(self, undo, touched, key, text):
        if type(text) is not str:
            raise OSError(errno.EINVAL, f"{key}: value must be text")
        directory, name = self._parent(undo, touched, key)
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
        touched.append((key, False))

    def _unlink(self, undo, touched, key):
        above, _, name = key.rpartition(".")
        split(key)
        directory = self.find(above or ".")
        if type(directory) is dict and name in directory:
            undo.append((directory, name, directory.pop(name)))
            touched.append((key, True))

    def _mkdir(self, undo, touched, key):
        directory, name = self._parent(undo, touched, key)
        old = directory.get(name, _MISSING)
        if type(old) is not dict:
            undo.append((directory, name, old))
            directory[name] = {}
            touched.append((key, True))


def entries(directory, prefix):
    """Yield all below a directory in order of name: [path, type, text or None]."""
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
    """The OSError for an error about a key, without the key, which the caller knows."""
    return OSError(errnum, os.strerror(errnum))
