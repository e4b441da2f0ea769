"""The key-value store of the instance, service ``kvs``.

A namespace is a tree of directories; a key is its path with ``.`` between the
names (``job.0000.0005.dc00.0000.R``).  Values are text.  The namespace
``primary`` is always there.  Everything is kept in memory: it ends with the
instance.  Commits are applied one after the other, each whole or not at all,
in the order in which they arrived; the sequence number of a namespace grows
by one with each (RFC 16: commit order is visible order).

All methods are for the instance owner only.  ``namespace`` is optional
everywhere and defaults to ``primary``; an unknown one is ENOENT.  Keys are
non-empty strings without empty components (EINVAL otherwise); ``.`` alone is
the root directory.

====================  ======================================================
method                payload -> response
====================  ======================================================
commit                ``{namespace, ops: [OP, ...]}`` -> ``{rootseq}``.
                      ops (may be empty) are applied in order and become
                      visible together.  OP is one of

                      - ``["put", KEY, TEXT]``
                      - ``["append", KEY, TEXT]``: to the end of the value,
                        which is created if it is missing (EISDIR on a
                        directory)
                      - ``["unlink", KEY]``: value, link or whole directory;
                        a missing key is no error
                      - ``["mkdir", KEY]``: an existing directory is kept
                      - ``["symlink", KEY, TARGET]`` or
                        ``["symlink", KEY, TARGET, NAMESPACE]``: TARGET is
                        a key from the root of its namespace, or ``.``
                      - ``["graft", KEY, NAMESPACE]``: NAMESPACE ends and its
                        root becomes the directory KEY; its watchers get
                        ENODATA.  This is how a job's guest link becomes a
                        plain directory

                      Missing directories on the way are made; a value in
                      the way is replaced by a directory.
lookup                ``{namespace, key}`` -> ``{value: TEXT}``, or
                      ``{namespace, keys: [KEY, ...]}`` ->
                      ``{values: {KEY: TEXT}}``, all or an error.  Missing:
                      ENOENT, a directory: EISDIR; the error text is the key
                      and the reason (``a: Is a directory``), as everywhere
                      where a key is the cause.  Links are followed.
readlink              ``{namespace, key}`` -> ``{target, namespace?}``; not a
                      link: EINVAL
dir                   ``{namespace, key?, recursive?, values?}`` ->
                      ``{entries: [[NAME, TYPE, TEXT or null], ...]}`` in
                      order of name.  key defaults to the root.  TYPE is
                      ``val``, ``dir`` or ``symlink``; the third item is the
                      value with ``values`` set and the target of a link, else
                      null.  With ``recursive`` NAME is the path below the
                      directory.  ENOTDIR on a value.
watch (streaming)     ``{namespace, key, append?, waitcreate?}`` ->
                      ``{value: TEXT}`` now and after every commit that
                      changed the value.  With ``append`` later responses have
                      only the text that was added.  ENOENT if the key is
                      missing and ``waitcreate`` is not set, and when it is
                      unlinked; EISDIR when it is a directory.  Ends with
                      ENODATA when its namespace goes or after
                      ``watch-cancel``.
watch-cancel          ``{matchtag}``, no response: ends that watch of the
                      sender
getroot               ``{namespace}`` -> ``{namespace, rootseq, owner}``
wait-version          ``{namespace, rootseq}`` -> ``{rootseq}`` as soon as the
                      namespace has reached it
namespace-create      ``{namespace, owner?}`` -> ``{}``; EEXIST if it exists
namespace-remove      ``{namespace}`` -> ``{}``; ``primary``: ENOTSUP
namespace-list        -> ``{namespaces: [{namespace, owner, rootseq}, ...]}``
fault                 ``{fail_commits: N, errnum?, match?}`` -> ``{}``.  For
                      fault runs: the next N commits that touch a key which
                      contains ``match`` (default: any) fail with errnum
                      (default EIO) and change nothing.  N 0 ends it.
stats-get             -> ``{commits, ops, lookups, faults, watchers,
                      namespaces: {NAME: rootseq}}``
====================  ======================================================
"""

import errno
import os

from flux_embedded.kernel import message
from flux_embedded.kernel.service import Service, request

PRIMARY = "primary"
MAX_LINKS = 10
MAX_DEPTH = 200
_MISSING = object()
_APPENDED = object()


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
        self.waiting = []  # (seq, request) of wait-version


class Watch:
    """One streaming request of `watch`."""

    __slots__ = ("msg", "home", "key", "append", "wait", "place", "sent")

    def __init__(self, msg, home, key, append, wait):
        self.msg = msg
        self.home = home  # the namespace it was asked for
        self.key = key
        self.append = append
        self.wait = wait
        self.place = None  # (namespace name, key), links followed
        self.sent = None  # the value it was last told


class Kvs(Service):
    """The service; see the table in the module's docstring."""

    name = "kvs"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.primary = Namespace(PRIMARY, message.OWNER)
        self.namespaces = {PRIMARY: self.primary}
        self.watches = {}  # (sender, matchtag) -> Watch
        self.places = {}  # (namespace name, key) -> list of Watch
        self.counts = {"commits": 0, "ops": 0, "lookups": 0, "faults": 0}
        self._fault = None
        self._apply = {
            "put": self._put,
            "append": self._append,
            "unlink": self._unlink,
            "mkdir": self._mkdir,
            "symlink": self._symlink,
            "graft": self._graft,
        }

    # -- commit ----------------------------------------------------------------

    @request("commit")
    def commit(self, msg):
        body = msg.body
        # (namespace name, key, whether what is below the key changed too)
        touched = []
        try:
            name = body.get("namespace")
            ns = self.primary if name is None else self._namespace(name)
            ops = body["ops"]
            if self._fault is not None:
                self._check_fault(ops)
            undo = []
            try:
                for op in ops:
                    self._apply[op[0]](ns, undo, touched, *op[1:])
            except BaseException:
                _roll_back(undo)
                raise
            count = len(ops)
        except (KeyError, TypeError, AttributeError, IndexError):
            raise OSError(errno.EPROTO, "malformed kvs.commit request") from None
        ns.seq += 1
        counts = self.counts
        counts["commits"] += 1
        counts["ops"] += count
        self.respond(msg, {"rootseq": ns.seq})
        if self.watches:
            self._notify(touched)
        if ns.waiting:
            self._release(ns)

    def _put(self, ns, undo, touched, key, text):
        if type(text) is not str:
            raise OSError(errno.EINVAL, f"{key}: value must be text")
        ns, directory, name, key = self._parent(ns, undo, touched, key)
        old = directory.get(name, _MISSING)
        undo.append((directory, name, old))
        directory[name] = text
        touched.append((ns.name, key, type(old) is dict or type(old) is Link))

    def _append(self, ns, undo, touched, key, text):
        if type(text) is not str:
            raise OSError(errno.EINVAL, f"{key}: value must be text")
        ns, directory, name, path = self._parent(ns, undo, touched, key)
        if type(directory.get(name)) is Link:
            ns, directory, name, path = self._resolve(ns, path, create=undo)
        old = directory.get(name)
        if type(old) is list:
            undo.append((old, _APPENDED, None))
            old.append(text)
        elif old is None:
            undo.append((directory, name, _MISSING))
            directory[name] = text
        elif type(old) is dict:
            raise _key_error(errno.EISDIR, key)
        else:
            undo.append((directory, name, old))
            directory[name] = [old, text]
        touched.append((ns.name, path, False))

    def _unlink(self, ns, undo, touched, key):
        try:
            ns, directory, name, path = self._resolve(ns, key, last=False)
        except (FileNotFoundError, NotADirectoryError):
            return
        old = directory.get(name, _MISSING)
        if old is not _MISSING:
            undo.append((directory, name, old))
            del directory[name]
            touched.append((ns.name, path, True))

    def _mkdir(self, ns, undo, touched, key):
        ns, directory, name, path = self._parent(ns, undo, touched, key)
        old = directory.get(name, _MISSING)
        if type(old) is not dict:
            undo.append((directory, name, old))
            directory[name] = {}
            touched.append((ns.name, path, True))

    def _symlink(self, ns, undo, touched, key, target, namespace=None):
        if target != ".":
            self._split(target)
        if namespace is not None and type(namespace) is not str:
            raise OSError(errno.EINVAL, f"{key}: namespace of a link must be text")
        ns, directory, name, path = self._parent(ns, undo, touched, key)
        undo.append((directory, name, directory.get(name, _MISSING)))
        directory[name] = Link(target, namespace)
        touched.append((ns.name, path, True))

    def _graft(self, ns, undo, touched, key, namespace):
        source = self._namespace(namespace)
        if source is ns or source is self.primary:
            raise OSError(errno.EINVAL, f"namespace {source.name} cannot be grafted here")
        ns, directory, name, path = self._parent(ns, undo, touched, key)
        undo.append((directory, name, directory.get(name, _MISSING)))
        undo.append((self.namespaces, namespace, source))
        directory[name] = source.root
        del self.namespaces[namespace]
        touched.append((ns.name, path, True))
        touched.append((namespace, None, True))

    def _check_fault(self, ops):
        fault = self._fault
        if fault["match"] and not any(fault["match"] in op[1] for op in ops):
            return
        fault["left"] -= 1
        if fault["left"] <= 0:
            self._fault = None
        self.counts["faults"] += 1
        raise OSError(fault["errnum"], os.strerror(fault["errnum"]))

    # -- walking ---------------------------------------------------------------

    def _namespace(self, name):
        if name is None:
            return self.primary
        ns = self.namespaces.get(name)
        if ns is None:
            raise OSError(errno.ENOENT, f"namespace {name} does not exist")
        return ns

    @staticmethod
    def _split(key):
        if type(key) is not str:
            raise OSError(errno.EINVAL, "key must be a string")
        parts = key.split(".")
        if "" in parts or len(parts) > MAX_DEPTH:
            raise OSError(errno.EINVAL, f"{key!r} is not a valid key")
        return parts

    def _parent(self, ns, undo, touched, key):
        """Where a write to `key` goes: (namespace, directory, name, key there).

        Directories on the way are made, and entered in the undo list.
        """
        parts = self._split(key)
        name = parts.pop()
        directory = ns.root
        for part in parts:
            child = directory.get(part)
            if type(child) is not dict:
                if type(child) is Link:
                    return self._resolve(ns, key, create=undo, last=False)
                if child is None:
                    undo.append((directory, part, _MISSING))
                else:
                    undo.append((directory, part, child))
                    # an earlier directory of the same name covers this one as well
                    way = ".".join(parts[: parts.index(part) + 1])
                    touched.append((ns.name, way, True))
                child = directory[part] = {}
            directory = child
        return ns, directory, name, key

    def _resolve(self, ns, key, create=None, last=True):
        """Follow links: (namespace, directory, name, key there); the name may not exist.

        Args:
            create (list): undo list; missing directories are made
            last (bool): follow a link that is the last component, too

        Raises:
            FileNotFoundError, NotADirectoryError: a directory on the way is
                missing and `create` is not given
        """
        pending = self._split(key)[::-1]
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
                    ns = self._namespace(child.namespace)
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
                    raise _key_error(errno.ENOENT if child is None else errno.ENOTDIR, key)
                create.append((directory, name, directory.get(name, _MISSING)))
                child = directory[name] = {}
            directory = child

    def _find(self, ns, key):
        """The value (str), directory (dict) or None at `key`, links followed."""
        child = ns.root
        if key == ".":
            return child
        for part in self._split(key):
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
            _, directory, name, _ = self._resolve(ns, key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        child = directory.get(name)
        if type(child) is list:
            child = directory[name] = "".join(child)
        return child

    def _value(self, ns, key):
        value = self._find(ns, key)
        if value is None:
            raise _key_error(errno.ENOENT, key)
        if type(value) is dict:
            raise _key_error(errno.EISDIR, key)
        return value

    # -- reading ---------------------------------------------------------------

    @request("lookup")
    def lookup(self, msg):
        body = msg.body or {}
        ns = self._namespace(body.get("namespace"))
        self.counts["lookups"] += 1
        if "keys" in body:
            answer = {"values": {key: self._value(ns, key) for key in body["keys"]}}
        else:
            answer = {"value": self._value(ns, body.get("key"))}
        self.respond(msg, answer)

    @request("readlink")
    def readlink(self, msg):
        body = msg.body or {}
        key = body.get("key")
        ns = self._namespace(body.get("namespace"))
        _, directory, name, _ = self._resolve(ns, key, last=False)
        link = directory.get(name)
        if link is None:
            raise _key_error(errno.ENOENT, key)
        if type(link) is not Link:
            raise _key_error(errno.EINVAL, key)
        answer = {"target": link.target}
        if link.namespace is not None:
            answer["namespace"] = link.namespace
        self.respond(msg, answer)

    @request("dir")
    def dir(self, msg):
        body = msg.body or {}
        ns = self._namespace(body.get("namespace"))
        key = body.get("key") or "."
        directory = self._find(ns, key)
        if directory is None:
            raise _key_error(errno.ENOENT, key)
        if type(directory) is not dict:
            raise _key_error(errno.ENOTDIR, key)
        entries = []
        self._list(entries, directory, "", bool(body.get("recursive")), bool(body.get("values")))
        self.respond(msg, {"entries": entries})

    def _list(self, entries, directory, prefix, recursive, values):
        for name in sorted(directory):
            child = directory[name]
            if type(child) is dict:
                entries.append([prefix + name, "dir", None])
                if recursive:
                    self._list(entries, child, f"{prefix}{name}.", True, values)
            elif type(child) is Link:
                entries.append([prefix + name, "symlink", child.target])
            elif values:
                text = child if type(child) is str else "".join(child)
                entries.append([prefix + name, "val", text])
            else:
                entries.append([prefix + name, "val", None])

    # -- watching --------------------------------------------------------------

    @request("watch", streaming=True)
    def watch(self, msg):
        body = msg.body or {}
        key = body.get("key")
        self._split(key)
        ns = self._namespace(body.get("namespace"))
        watch = Watch(msg, ns, key, bool(body.get("append")), bool(body.get("waitcreate")))
        self.watches[msg.sender, msg.matchtag] = watch
        self._place(watch)
        if not watch.wait and self._find(ns, key) is None:
            self._end(watch, errno.ENOENT)
        else:
            self._tell(watch)

    @request("watch-cancel")
    def watch_cancel(self, msg):
        watch = self.watches.get((msg.sender, (msg.body or {}).get("matchtag")))
        if watch is not None:
            self._end(watch, errno.ENODATA)

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        for watch in [w for (sender, _), w in self.watches.items() if sender is msg.sender]:
            self._forget(watch)
        for ns in self.namespaces.values():
            if ns.waiting:
                ns.waiting = [item for item in ns.waiting if item[1].sender is not msg.sender]

    def _place(self, watch):
        """Enter a watch where its key leads to now."""
        place = (watch.home.name, watch.key)
        try:
            ns, _, _, key = self._resolve(watch.home, watch.key)
            place = (ns.name, key)
        except OSError:
            pass  # it will be found when what is missing is made
        if watch.place != place:
            self._displace(watch)
            watch.place = place
            self.places.setdefault(place, []).append(watch)

    def _displace(self, watch):
        here = self.places.get(watch.place)
        if here is not None:
            here.remove(watch)
            if not here:
                del self.places[watch.place]

    def _forget(self, watch):
        del self.watches[watch.msg.sender, watch.msg.matchtag]
        self._displace(watch)

    def _end(self, watch, errnum):
        self._forget(watch)
        text = None if errnum == errno.ENODATA else f"{watch.key}: {os.strerror(errnum)}"
        self.respond_error(watch.msg, errnum, text)

    def _notify(self, touched):
        """Tell the watches that a commit concerns, in the order of its changes."""
        for name, key, below in touched:
            if below:
                self._notify_below(name, key)
            else:
                for watch in list(self.places.get((name, key), ())):
                    self._tell(watch)

    def _notify_below(self, name, key):
        """A directory or link changed: watches may lead elsewhere from now on."""
        prefix = None if key is None else key + "."
        for watch in list(self.watches.values()):
            if key is None and watch.home.name == name:
                self._end(watch, errno.ENODATA)
                continue
            ways = (watch.place, (watch.home.name, watch.key))
            if any(
                way[0] == name and (key is None or way[1] == key or way[1].startswith(prefix))
                for way in ways
            ):
                self._place(watch)
                self._tell(watch)

    def _tell(self, watch):
        """Send a watch what is new to it."""
        try:
            value = self._find(watch.home, watch.key)
        except FileNotFoundError:
            value = None  # the namespace of a link is gone
        sent = watch.sent
        if value is None:
            if sent is not None:
                self._end(watch, errno.ENOENT)
        elif type(value) is dict:
            self._end(watch, errno.EISDIR)
        elif value != sent:
            watch.sent = value
            if watch.append and sent and value.startswith(sent):
                value = value[len(sent) :]
            self.respond(watch.msg, {"value": value})

    # -- namespaces and the rest -------------------------------------------------

    @request("getroot")
    def getroot(self, msg):
        ns = self._namespace((msg.body or {}).get("namespace"))
        self.respond(msg, self._describe(ns))

    @request("wait-version")
    def wait_version(self, msg):
        body = msg.body or {}
        ns = self._namespace(body.get("namespace"))
        if type(body.get("rootseq")) is not int:
            raise OSError(errno.EPROTO, "rootseq must be an integer")
        ns.waiting.append((body["rootseq"], msg))
        self._release(ns)

    def _release(self, ns):
        waiting, ns.waiting = ns.waiting, []
        for seq, msg in waiting:
            if seq <= ns.seq:
                self.respond(msg, {"rootseq": ns.seq})
            else:
                ns.waiting.append((seq, msg))

    @request("namespace-create")
    def namespace_create(self, msg):
        body = msg.body or {}
        name = body.get("namespace")
        if type(name) is not str or not name:
            raise OSError(errno.EPROTO, "namespace must be a name")
        if name in self.namespaces:
            raise OSError(errno.EEXIST, f"namespace {name} exists")
        self.namespaces[name] = Namespace(name, body.get("owner", message.OWNER))
        self.respond(msg, {})

    @request("namespace-remove")
    def namespace_remove(self, msg):
        name = (msg.body or {}).get("namespace")
        if name == PRIMARY:
            raise OSError(errno.ENOTSUP, "the primary namespace cannot be removed")
        ns = self._namespace(name)
        del self.namespaces[name]
        for _, waiting in ns.waiting:
            self.respond_error(waiting, errno.ENOENT, f"namespace {name} does not exist")
        self.respond(msg, {})
        self._notify([(name, None, True)])

    @request("namespace-list")
    def namespace_list(self, msg):
        self.respond(msg, {"namespaces": [self._describe(ns) for ns in self.namespaces.values()]})

    @staticmethod
    def _describe(ns):
        return {"namespace": ns.name, "rootseq": ns.seq, "owner": ns.owner}

    @request("fault")
    def fault(self, msg):
        body = msg.body or {}
        count = body.get("fail_commits")
        if type(count) is not int or count < 0:
            raise OSError(errno.EINVAL, f"fail_commits={count!r}: expected a count of commits")
        self._fault = None
        if count:
            self._fault = {
                "left": count,
                "errnum": body.get("errnum", errno.EIO),
                "match": body.get("match", ""),
            }
        self.respond(msg, {})

    @request("stats-get")
    def stats(self, msg):
        seqs = {ns.name: ns.seq for ns in self.namespaces.values()}
        self.respond(msg, {**self.counts, "watchers": len(self.watches), "namespaces": seqs})


def _key_error(errnum, key):
    return OSError(errnum, f"{key}: {os.strerror(errnum)}")


def _roll_back(undo):
    for where, name, old in reversed(undo):
        if name is _APPENDED:
            where.pop()
        elif old is _MISSING:
            del where[name]
        else:
            where[name] = old
