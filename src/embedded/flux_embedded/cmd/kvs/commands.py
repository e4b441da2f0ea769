"""Reading and writing keys."""

import re
import sys

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, strerror
from flux_embedded.cmd.lib.optparse import Opt, command

NAMESPACE = Opt("namespace", "N", "NAME", "Specify KVS namespace to use")


class Store:
    """The KVS, in the namespace of the options; errors name the key."""

    def __init__(self, opts):
        self.client = connect()
        self.extra = {"namespace": opts.get("namespace")} if "namespace" in opts else {}

    def rpc(self, method, payload, key=None):
        try:
            return self.client.rpc(f"kvs.{method}", {**payload, **self.extra})
        except OSError as exc:
            raise CommandError(f"{key}: {strerror(exc)}" if key else strerror(exc)) from None

    def lookup(self, key):
        return self.rpc("lookup", {"key": key}, key)["value"]

    def commit(self, ops, key=None):
        self.rpc("commit", {"ops": ops}, key)

    def entries(self, key, **flags):
        payload = {"values": True, **flags}
        if key != ".":
            payload["key"] = key
        return self.rpc("dir", payload, key)["entries"]


@command(
    "flux-kvs get",
    "[-r|-t] [-a treeobj] [-l] [-W] [-w] [-u] [-A] [-f] [-c COUNT] key [key...]",
    "Get value stored under key",
    [
        NAMESPACE,
        Opt("raw", "r", usage="Interpret value(s) as raw data"),
        Opt("label", "l", usage="Print key= before value"),
        Opt("waitcreate", "W", usage="Wait for key to be created if it does not exist"),
        Opt("watch", "w", usage="Monitor key writes"),
        Opt("uniq", "u", usage="Only monitor key writes if values have changed"),
        Opt("append", "A", usage="Only display value(s) appended"),
        Opt("full", "f", usage="Monitor key writes with more complete accuracy"),
        Opt("count", "c", "COUNT", "Display at most COUNT changes", kind="int"),
    ],
    args=(1, None),
)
def get(opts):
    store = Store(opts)
    if opts.get("watch") or opts.get("waitcreate"):
        return _watch(store, opts)
    for key in opts.args:
        _print(key, store.lookup(key), opts)
    return 0


def _print(key, value, opts):
    label = f"{key}=" if opts.get("label") else ""
    if opts.get("raw"):
        sys.stdout.write(label + value)
    elif value or label:
        print(label + value, flush=True)


def _watch(store, opts):
    import errno

    for key in opts.args:
        left = opts.get("count", 0) if opts.get("watch") else 1
        payload = {"key": key, **store.extra}
        for name in ("waitcreate", "append", "full"):
            if opts.get(name):
                payload[name] = True
        last = None
        call = store.client.stream("kvs.watch", payload)
        while True:
            try:
                value = call.get()["value"]
            except OSError as exc:
                if exc.errno == errno.ENODATA:
                    break
                raise CommandError(f"{key}: {strerror(exc)}") from None
            if opts.get("uniq") and value == last:
                continue
            last = value
            _print(key, value, opts)
            left -= 1
            if left == 0:
                break
    return 0


@command(
    "flux-kvs put",
    "[-N ns] [-O|-b|-s] [-r|-t] [-n] [-A] [-S] key=value [key=value...]",
    "Store value under key",
    [
        NAMESPACE,
        Opt("raw", "r", usage="Store value(s) as-is without adding NULL termination"),
        Opt("append", "A", usage="Append value(s) to key instead of overwriting"),
        Opt("no-merge", "n", usage="accepted for compatibility"),
        Opt("sync", "S", usage="accepted for compatibility"),
        Opt("sequence", "s", usage="Output root sequence of root containing namespace"),
    ],
    args=(1, None),
)
def put(opts):
    ops = []
    for word in opts.args:
        key, equals, value = word.partition("=")
        if not equals:
            raise CommandError("put: you must specify a value as key=value")
        if value == "-" and opts.get("raw"):
            value = sys.stdin.read()
        ops.append(["append" if opts.get("append") else "put", key, value])
    store = Store(opts)
    answer = store.rpc("commit", {"ops": ops})
    if opts.get("sequence"):
        print(answer["rootseq"])
    return 0


@command(
    "flux-kvs ls",
    "[-N ns] [-R] [-d] [-F] [-w COLS] [-1] [key...]",
    "List directory",
    [
        NAMESPACE,
        Opt("recursive", "R", usage="List directory recursively"),
        Opt("directory", "d", usage="List directory instead of contents"),
        Opt("width", "w", "N", "Set output width to N. 0 means no limit", kind="int"),
        Opt("1", "1", usage="Force one entry per line"),
        Opt("classify", "F", usage="Append indicator (one of .@) to entries"),
    ],
)
def ls(opts):
    store = Store(opts)
    keys = sorted(opts.args) or ["."]
    width = 1 if opts.get("1") else opts.get("width", 80) or 1 << 30
    plain, directories = [], []
    for key in keys:
        kind, entries = _classify(store, key)
        if kind == "dir" and not opts.get("directory"):
            directories.append((key, entries))
        else:
            plain.append((key, kind))
    _columns(plain, opts, width)
    titles = len(keys) > 1 or opts.get("recursive")
    first = not plain
    while directories:
        key, entries = directories.pop(0)
        if titles:
            if not first:
                print()
            print(f"{key}:")
        first = False
        _columns([entry[:2] for entry in entries], opts, width)
        if opts.get("recursive"):
            below = []
            for name, kind, _ in entries:
                if kind == "dir":
                    path = name if key == "." else f"{key}.{name}"
                    below.append((path, store.entries(path)))
            directories[:0] = below
    return 0


def _classify(store, key):
    """(type, entries) of a key."""
    import errno

    try:
        payload = {"values": False} if key == "." else {"values": False, "key": key}
        return "dir", store.client.rpc("kvs.dir", {**payload, **store.extra})["entries"]
    except OSError as exc:
        if exc.errno != errno.ENOTDIR:
            raise CommandError(f"{key}: {strerror(exc)}") from None
    return "val", None


def _marked(name, kind, opts):
    if opts.get("classify"):
        return name + {"dir": ".", "symlink": "@"}.get(kind, "")
    return name


def _columns(entries, opts, width):
    """Print (name, kind) in columns of one width: the longest name, its mark not counted, and four blanks."""
    if not entries:
        return
    column = max(len(name) for name, _ in entries) + 4
    names = [_marked(name, kind, opts) for name, kind in entries]
    each = max(1, width // column)
    for start in range(0, len(names), each):
        row = names[start : start + each]
        print("".join(f"{name:<{column}}" for name in row[:-1]) + row[-1])


@command(
    "flux-kvs dir",
    "[-N ns] [-R] [-d] [-w COLS] [-a treeobj] [key]",
    "Display all keys under directory",
    [
        NAMESPACE,
        Opt("recursive", "R", usage="Recursively display keys under subdirectories"),
        Opt("directory", "d", usage="List directory entries and not values"),
        Opt("width", "w", "N", "Set output width to N. 0 means no limit", kind="int"),
    ],
    args=(0, 1),
)
def dir_(opts):
    store = Store(opts)
    _dump(store, opts.args[0] if opts.args else ".", opts)
    return 0


def _dump(store, key, opts):
    width = opts.get("width", 80)
    for name, kind, value in store.entries(key):
        path = name if key == "." else f"{key}.{name}"
        if kind == "symlink":
            print(f"{path} -> {value}")
        elif kind == "dir":
            if opts.get("recursive"):
                _dump(store, path, opts)
            else:
                print(f"{path}.")
        elif opts.get("directory"):
            print(path)
        else:
            line = f"{path} = {value}"
            if width and len(line) > width:
                line = line[: width - 3] + "..."
            print(line.splitlines()[0] if line.splitlines() else line)


@command(
    "flux-kvs unlink",
    "[-N ns] [-O|-b|-s] [-R] [-f] key [key...]",
    "Remove key",
    [
        NAMESPACE,
        Opt("recursive", "R", usage="Remove directory contents recursively"),
        Opt("force", "f", usage="ignore nonexistent files"),
    ],
    args=(1, None),
)
def unlink(opts):
    store = Store(opts)
    for key in opts.args:
        if opts.get("force"):
            continue
        kind, entries = _classify(store, key)
        if kind == "dir" and entries and not opts.get("recursive"):
            raise CommandError(f"unlink: {key}: Directory not empty")
    store.commit([["unlink", key] for key in opts.args])
    return 0


@command(
    "flux-kvs link",
    "[-N ns] [-T ns] target linkname",
    "Create a new name for target",
    [NAMESPACE, Opt("target-namespace", "T", "NAME", "Specify target's namespace")],
    args=2,
)
def link(opts):
    target, name = opts.args
    op = ["symlink", name, target]
    if "target-namespace" in opts:
        op.append(opts.get("target-namespace"))
    Store(opts).commit([op])
    return 0


@command(
    "flux-kvs readlink",
    "[-N ns] key [key...]",
    "Retrieve the key a link refers to",
    [
        NAMESPACE,
        Opt("namespace-only", "o", usage="Print only namespace if link has a namespace"),
        Opt("key-only", "k", usage="Print only key if link has a namespace"),
    ],
    args=(1, None),
)
def readlink(opts):
    store = Store(opts)
    for key in opts.args:
        answer = store.rpc("readlink", {"key": key}, f"readlink: {key}")
        namespace, target = answer.get("namespace"), answer["target"]
        if namespace and opts.get("namespace-only"):
            print(namespace)
        elif namespace and not opts.get("key-only"):
            print(f"{namespace}::{target}")
        else:
            print(target)
    return 0


@command(
    "flux-kvs mkdir", "[-N ns] key [key...]", "Create a directory", [NAMESPACE], args=(1, None)
)
def mkdir(opts):
    Store(opts).commit([["mkdir", key] for key in opts.args])
    return 0


def _tree(store, source, target):
    """The operations that make target a copy of source."""
    kind, entries = _classify(store, source)
    if kind == "val":
        return [["put", target, store.lookup(source)]]
    ops = [["mkdir", target]]
    for name, _, _ in entries:
        ops += _tree(store, f"{source}.{name}", f"{target}.{name}")
    return ops


@command(
    "flux-kvs copy", "source destination", "Copy source key to destination key", [NAMESPACE], 2
)
def copy(opts):
    store = Store(opts)
    store.commit(_tree(store, *opts.args))
    return 0


@command(
    "flux-kvs move", "source destination", "Move source key to destination key", [NAMESPACE], 2
)
def move(opts):
    store = Store(opts)
    store.commit([*_tree(store, *opts.args), ["unlink", opts.args[0]]])
    return 0


@command("flux-kvs version", "[-N ns]", "Display curent KVS version", [NAMESPACE])
def version(opts):
    print(Store(opts).rpc("getroot", {"namespace": "primary"})["rootseq"])
    return 0


@command(
    "flux-kvs getroot",
    "[-N ns] [-s | -o]",
    "Get KVS root",
    [
        NAMESPACE,
        Opt("owner", "o", usage="Show owner"),
        Opt("sequence", "s", usage="Show sequence number"),
    ],
)
def getroot(opts):
    answer = Store(opts).rpc("getroot", {"namespace": "primary"})
    print(answer["owner"] if opts.get("owner") else answer["rootseq"])
    return 0


@command("flux-kvs wait", "[-N ns] version", "Block until the KVS reaches version", [NAMESPACE])
def wait(opts):
    if len(opts.args) != 1:
        raise opts.fail_usage()
    # what is no number counts as 0, as for atoi(3)
    number = re.match(r"\s*[+-]?\d+", opts.args[0])
    Store(opts).rpc("wait-version", {"rootseq": int(number.group()) if number else 0})
    return 0
