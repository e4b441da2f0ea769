# SPDX-License-Identifier: LGPL-3.0-or-later
"""The tree of a namespace of the KVS: directories, values and links, and whole commits to it."""

import errno
import os

from flux_engine.kernel.service import Malformed

MAX_LINKS = 10
MAX_DEPTH = 200
_MISSING = object()
_APPENDED = object()


class Link:
    """A symbolic link: a key, from the root of the namespace."""

    __slots__ = ("target",)

    def __init__(self, target):
        self.target = target


class Namespace:
    """A tree.

    Directories are dicts; values are str, or a list of str as long as text is only appended and nobody reads it.

    Attributes:
        name (str); owner (int): a userid
        root (dict)
        seq (int): how many commits there were
    """

    def __init__(self, name, owner):
        self.name = name
        self.owner = owner
        self.root = {}
        self.seq = 0
        self._apply = {
            "put": self._put,
            "append": self._append,
            "unlink": self._unlink,
            "mkdir": self._mkdir,
            "symlink": self._symlink,
        }

    # -- reading ---------------------------------------------------------------------------------

    def resolve(self, key, create=None, last=True):
        """Follow links: (directory, name, key there); the name may not exist.

        Args:
            create (list): undo list; missing directories are made
            last (bool): follow a link that is the last component, too

        Raises:
            FileNotFoundError, NotADirectoryError: a directory on the way is missing and `create` is not given
        """
        pending = split(key)[::-1]
        path = []
        links = 0
        directory = self.root
        while True:
            name = pending.pop()
            child = directory.get(name)
            if type(child) is Link and (pending or last):
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, f"{key}: too many links")
                directory = self.root
                path.clear()
                pending += child.target.split(".")[::-1]
                continue
            path.append(name)
            if not pending:
                return directory, name, ".".join(path)
            if type(child) is not dict:
                if create is None:
                    raise error(errno.ENOENT if child is None else errno.ENOTDIR)
                create.append((directory, name, directory.get(name, _MISSING)))
                child = directory[name] = {}
            directory = child

    def find(self, key):
        """The value (str), directory (dict) or None at `key`, links followed."""
        if key == ".":
            return self.root
        try:
            directory, name, _ = self.resolve(key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        child = directory.get(name)
        if type(child) is list:
            child = directory[name] = "".join(child)
        return child

    def value(self, key):
        """The value at `key`; what cannot be a key is none that is there."""
        try:
            value = self.find(key)
        except OSError as exc:
            raise error(errno.ENOENT) if exc.errno == errno.EINVAL else exc from None
        if value is None:
            raise error(errno.ENOENT)
        if type(value) is dict:
            raise error(errno.EISDIR)
        return value

    # -- writing ---------------------------------------------------------------------------------

    def commit(self, ops):
        """Apply all operations or, if one fails, none.

        Args:
            ops (list): as in the payload of a commit

        Returns:
            list: (key, whether what is below the key changed too) for each change, in order

        Raises:
            OSError: an operation failed
            TypeError, KeyError, IndexError: it is malformed
        """
        undo = []
        touched = []
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
        self.seq += 1
        return touched

    def _parent(self, undo, touched, key):
        """Where a write to `key` goes: (directory, name, key there).

        Directories on the way are made, and entered in the undo list.
        """
        parts = split(key)
        name = parts.pop()
        directory = self.root
        for part in parts:
            child = directory.get(part)
            if type(child) is not dict:
                if type(child) is Link:
                    return self.resolve(key, create=undo, last=False)
                if child is None:
                    undo.append((directory, part, _MISSING))
                else:
                    undo.append((directory, part, child))
                    # an earlier directory of the same name covers this one as well
                    touched.append((".".join(parts[: parts.index(part) + 1]), True))
                child = directory[part] = {}
            directory = child
        return directory, name, key

    def _put(self, undo, touched, key, text):
        if type(text) is not str:
            raise OSError(errno.EINVAL, f"{key}: value must be text")
        directory, name, path = self._parent(undo, touched, key)
        old = directory.get(name, _MISSING)
        undo.append((directory, name, old))
        directory[name] = text
        touched.append((path, type(old) is dict or type(old) is Link))

    def _append(self, undo, touched, key, text):
        if type(text) is not str:
            raise OSError(errno.EINVAL, f"{key}: value must be text")
        directory, name, path = self._parent(undo, touched, key)
        if type(directory.get(name)) is Link:
            directory, name, path = self.resolve(path, create=undo)
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
        touched.append((path, False))

    def _unlink(self, undo, touched, key):
        try:
            directory, name, path = self.resolve(key, last=False)
        except (FileNotFoundError, NotADirectoryError):
            return
        if name in directory:
            undo.append((directory, name, directory.pop(name)))
            touched.append((path, True))

    def _mkdir(self, undo, touched, key):
        directory, name, path = self._parent(undo, touched, key)
        old = directory.get(name, _MISSING)
        if type(old) is not dict:
            undo.append((directory, name, old))
            directory[name] = {}
            touched.append((path, True))

    def _symlink(self, undo, touched, key, target):
        split(target)
        directory, name, path = self._parent(undo, touched, key)
        undo.append((directory, name, directory.get(name, _MISSING)))
        directory[name] = Link(target)
        touched.append((path, True))


def entries(directory, prefix, recursive, values):
    """Yield what is in a directory in order of name: [name, type, text or None]."""
    for name in sorted(directory):
        child = directory[name]
        if type(child) is dict:
            yield [prefix + name, "dir", None]
            if recursive:
                yield from entries(child, f"{prefix}{name}.", True, values)
        elif type(child) is Link:
            yield [prefix + name, "symlink", child.target]
        elif values:
            yield [prefix + name, "val", child if type(child) is str else "".join(child)]
        else:
            yield [prefix + name, "val", None]


def split(key):
    """Return the components of a key; OSError EINVAL if it is none."""
    if type(key) is not str:
        raise Malformed("kvs: 'key' must be a string")
    parts = key.split(".")
    if "" in parts or len(parts) > MAX_DEPTH:
        raise OSError(errno.EINVAL, f"{key!r} is not a valid key")
    return parts


def error(errnum):
    """The OSError of something wrong with a key, which whoever asked knows."""
    return OSError(errnum, os.strerror(errnum))
