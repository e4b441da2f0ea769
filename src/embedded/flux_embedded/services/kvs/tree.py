# SPDX-License-Identifier: LGPL-3.0-or-later
"""The tree of the KVS: namespaces, directories, links, and finding one's way."""

import errno
import os

from flux_embedded.kernel.service import Malformed

PRIMARY = "primary"
MAX_LINKS = 10
MAX_DEPTH = 200
MISSING = object()


class Link:
    """A symbolic link: a key, from the root of a namespace (None: the link's own)."""

    __slots__ = ("target", "namespace")

    def __init__(self, target, namespace=None):
        self.target = target
        self.namespace = namespace


class Namespace:
    """A tree.

    Directories are dicts; values are str, or a list of str as long as text is
    only appended and nobody reads it.
    """

    def __init__(self, name, owner):
        self.name = name
        self.owner = owner
        self.root = {}
        self.seq = 0


class Tree:
    """All namespaces.

    Args:
        owner (int): userid of the primary namespace's owner
    """

    def __init__(self, owner):
        self.primary = Namespace(PRIMARY, owner)
        self.namespaces = {PRIMARY: self.primary}

    def namespace(self, name):
        if name is None:
            return self.primary
        if type(name) is not str:
            raise Malformed("kvs: 'namespace' must be a string")
        ns = self.namespaces.get(name)
        if ns is None:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        return ns

    def parent(self, ns, undo, touched, key):
        """Where a write to `key` goes: (namespace, directory, name, key there).

        Directories on the way are made, and entered in the undo list.
        """
        parts = split(key)
        name = parts.pop()
        directory = ns.root
        for part in parts:
            child = directory.get(part)
            if type(child) is not dict:
                if type(child) is Link:
                    return self.resolve(ns, key, create=undo, last=False)
                if child is None:
                    undo.append((directory, part, MISSING))
                else:
                    undo.append((directory, part, child))
                    # an earlier directory of the same name covers this one as well
                    way = ".".join(parts[: parts.index(part) + 1])
                    touched.append((ns.name, way, True))
                child = directory[part] = {}
            directory = child
        return ns, directory, name, key

    def resolve(self, ns, key, create=None, last=True):
        """Follow links: (namespace, directory, name, key there); the name may not exist.

        Args:
            create (list): undo list; missing directories are made
            last (bool): follow a link that is the last component, too

        Raises:
            FileNotFoundError, NotADirectoryError: a directory on the way is
                missing and `create` is not given
        """
        pending = split(key)[::-1]
        path = []
        links = 0
        directory = ns.root
        while True:
            name = pending.pop()
            child = directory.get(name)
            if type(child) is Link and (pending or last):
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, f"{key}: too many links")
                if child.namespace is not None:
                    ns = self.namespace(child.namespace)
                directory = ns.root
                path.clear()
                if child.target != ".":
                    pending += child.target.split(".")[::-1]
                elif not pending:
                    # the root has no name: give it one of a directory around it
                    return ns, {".": directory}, ".", "."
                continue
            path.append(name)
            if not pending:
                return ns, directory, name, ".".join(path)
            if type(child) is not dict:
                if create is None:
                    raise error(errno.ENOENT if child is None else errno.ENOTDIR)
                create.append((directory, name, directory.get(name, MISSING)))
                child = directory[name] = {}
            directory = child

    def find(self, ns, key):
        """The value (str), directory (dict) or None at `key`, links followed."""
        child = ns.root
        if key == ".":
            return child
        for part in split(key):
            if type(child) is not dict:
                break
            directory, child = child, child.get(part)
        else:
            if type(child) is str or type(child) is dict:
                return child
            if type(child) is list:
                child = directory[part] = "".join(child)
                return child
        try:
            _, directory, name, _ = self.resolve(ns, key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        child = directory.get(name)
        if type(child) is list:
            child = directory[name] = "".join(child)
        return child

    def value(self, ns, key):
        value = self.find(ns, key)
        if value is None:
            raise error(errno.ENOENT)
        if type(value) is dict:
            raise error(errno.EISDIR)
        return value

    def entries(self, directory, prefix, recursive, values):
        """Yield what is in a directory in order of name: [name, type, text or None]."""
        for name in sorted(directory):
            child = directory[name]
            if type(child) is dict:
                yield [prefix + name, "dir", None]
                if recursive:
                    yield from self.entries(child, f"{prefix}{name}.", True, values)
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
