# SPDX-License-Identifier: LGPL-3.0-or-later
"""Changing the tree of the KVS, whole commits at a time."""

import errno

from flux_embedded.services.kvs.tree import MISSING, Link, error, split

_APPENDED = object()


class Writer:
    """Applies the operations of commits.

    Args:
        tree (Tree): what is changed
    """

    def __init__(self, tree):
        self.tree = tree
        self._apply = {
            "put": self._put,
            "append": self._append,
            "unlink": self._unlink,
            "mkdir": self._mkdir,
            "symlink": self._symlink,
            "graft": self._graft,
        }

    def apply(self, ns, ops):
        """Apply all operations or, if one fails, none.

        Args:
            ns (Namespace): where
            ops (list): as in the payload of a commit

        Returns:
            list: (namespace name, key, whether what is below the key changed
            too) for each change, in order

        Raises:
            OSError: an operation failed
            TypeError, KeyError, IndexError: it is malformed
        """
        undo = []
        touched = []
        try:
            for op in ops:
                self._apply[op[0]](ns, undo, touched, *op[1:])
        except BaseException:
            _roll_back(undo)
            raise
        return touched

    def _put(self, ns, undo, touched, key, text):
        if type(text) is not str:
            raise OSError(errno.EINVAL, f"{key}: value must be text")
        ns, directory, name, key = self.tree.parent(ns, undo, touched, key)
        old = directory.get(name, MISSING)
        undo.append((directory, name, old))
        directory[name] = text
        touched.append((ns.name, key, type(old) is dict or type(old) is Link))

    def _append(self, ns, undo, touched, key, text):
        if type(text) is not str:
            raise OSError(errno.EINVAL, f"{key}: value must be text")
        ns, directory, name, path = self.tree.parent(ns, undo, touched, key)
        if type(directory.get(name)) is Link:
            ns, directory, name, path = self.tree.resolve(ns, path, create=undo)
        old = directory.get(name)
        if type(old) is list:
            undo.append((old, _APPENDED, None))
            old.append(text)
        elif old is None:
            undo.append((directory, name, MISSING))
            directory[name] = text
        elif type(old) is dict:
            raise error(errno.EISDIR)
        else:
            undo.append((directory, name, old))
            directory[name] = [old, text]
        touched.append((ns.name, path, False))

    def _unlink(self, ns, undo, touched, key):
        try:
            ns, directory, name, path = self.tree.resolve(ns, key, last=False)
        except (FileNotFoundError, NotADirectoryError):
            return
        old = directory.get(name, MISSING)
        if old is not MISSING:
            undo.append((directory, name, old))
            del directory[name]
            touched.append((ns.name, path, True))

    def _mkdir(self, ns, undo, touched, key):
        ns, directory, name, path = self.tree.parent(ns, undo, touched, key)
        old = directory.get(name, MISSING)
        if type(old) is not dict:
            undo.append((directory, name, old))
            directory[name] = {}
            touched.append((ns.name, path, True))

    def _symlink(self, ns, undo, touched, key, target, namespace=None):
        if target != ".":
            split(target)
        if namespace is not None and type(namespace) is not str:
            raise OSError(errno.EINVAL, f"{key}: namespace of a link must be text")
        ns, directory, name, path = self.tree.parent(ns, undo, touched, key)
        undo.append((directory, name, directory.get(name, MISSING)))
        directory[name] = Link(target, namespace)
        touched.append((ns.name, path, True))

    def _graft(self, ns, undo, touched, key, namespace):
        source = self.tree.namespace(namespace)
        if source is ns or source is self.tree.primary:
            raise OSError(errno.EINVAL, f"namespace {source.name} cannot be grafted here")
        ns, directory, name, path = self.tree.parent(ns, undo, touched, key)
        undo.append((directory, name, directory.get(name, MISSING)))
        undo.append((self.tree.namespaces, namespace, source))
        directory[name] = source.root
        del self.tree.namespaces[namespace]
        touched.append((ns.name, path, True))
        touched.append((namespace, None, True))


def _roll_back(undo):
    for where, name, old in reversed(undo):
        if name is _APPENDED:
            where.pop()
        elif old is MISSING:
            del where[name]
        else:
            where[name] = old
