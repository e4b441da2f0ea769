"""``flux module``: load, unload and look at broker modules."""

import functools
import json
import os

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text, strerror
from flux_embedded.cmd.lib.eventlog import compact
from flux_embedded.cmd.lib.optparse import Group, Opt, command


def canonical(path):
    """A path as the broker must be given it; a name without a slash stays.

    Raises:
        CommandError: there is no such file
    """
    if "/" not in path:
        return path
    if not os.path.exists(path):
        raise CommandError(
            f"could not canonicalize module path '{path}': No such file or directory"
        )
    return os.path.realpath(path)


def name_of(word):
    """The module that a name or path stands for."""
    if "/" not in word:
        return word
    return os.path.basename(word).split(".", 1)[0]


def _load(client, word, path, args, name, is_exec):
    payload = {"path": path, "args": args}
    if name:
        payload["name"] = name
    if is_exec:
        payload["exec"] = True
    try:
        client.rpc("module.load", payload)
    except OSError as exc:
        raise CommandError(f"load {word}: {error_text(exc)}") from None


def _loaded_name(client, word):
    """The name under which a module is loaded: one given by path is looked for by its path."""
    name = name_of(word)
    if "/" not in word:
        return name
    path = os.path.realpath(word)
    loaded = [mod["name"] for mod in client.rpc("module.list")["mods"] if mod["path"] == path]
    return loaded[0] if loaded and name not in loaded else name


def _remove(client, name, force):
    import errno

    try:
        client.rpc("module.remove", {"name": name})
    except OSError as exc:
        if force and exc.errno == errno.ENOENT:
            return
        raise CommandError(f"remove {name}: {error_text(exc)}") from None


LOAD_OPTIONS = [
    Opt("name", "n", "NAME", "Override default module name"),
    Opt("exec", None, usage="Run the module in a process of its own"),
]


def _on_rank(function):
    """A command that changes modules; on another rank than 0, as ``flux exec`` plays it, it does nothing.

    A real broker rank has modules of its own: here all ranks share those of rank 0.
    """

    @functools.wraps(function)
    def call(argv):
        if os.environ.get("FLUX_EMBEDDED_RANK", "0") != "0":
            return 0
        return function(argv)

    return call


@_on_rank
@command(
    "flux-module load", "[OPTIONS] module [args...]", "Load module", LOAD_OPTIONS, args=(1, None)
)
def load(opts):
    word, *args = opts.args
    path = canonical(word)
    _load(connect(), word, path, args, opts.get("name"), opts.get("exec"))
    return 0


@_on_rank
@command(
    "flux-module remove",
    "[OPTIONS] module",
    "Unload module",
    [
        Opt("force", "f", usage="Ignore nonexistent modules"),
        Opt(
            "cancel",
            None,
            usage="Forcibly stop an unresponsive module thread when it reaches the next "
            "pthread(7) cancellation point",
        ),
    ],
    args=1,
)
def remove(opts):
    client = connect()
    _remove(client, _loaded_name(client, opts.args[0]), opts.get("force"))
    return 0


@_on_rank
@command(
    "flux-module reload",
    "[OPTIONS] module [args...]",
    "Reload module",
    [Opt("force", "f", usage="Ignore nonexistent modules"), *LOAD_OPTIONS],
    args=(1, None),
)
def reload(opts):
    word, *args = opts.args
    path = canonical(word)
    client = connect()
    _remove(client, opts.get("name") or _loaded_name(client, word), opts.get("force"))
    _load(client, word, path, args, opts.get("name"), opts.get("exec"))
    return 0


STATES = "IRFE"


@command(
    "flux-module list",
    "[OPTIONS]",
    "List loaded modules",
    [Opt("long", "l", usage="Include full DSO path for each module")],
    args=0,
)
def list_modules(opts):
    long = opts.get("long")
    modules = connect().rpc("module.list")["mods"]
    head = f"{'Module':<24} {'Idle':>5}  S {'Sendq':>5} {'Recvq':>5} "
    print(head + (f"{'Service':<8} Path" if long else "Service"))
    for mod in modules:
        name = mod["name"] if len(mod["name"]) <= 24 else mod["name"][:23] + "+"
        services = ",".join(sorted(word for word in mod["services"] if word != mod["name"]))
        if long:
            services = services if len(services) <= 8 else services[:7] + "+"
            services = f"{services:<8} {mod['path']}"
        state = STATES[mod["status"]] if mod["status"] < len(STATES) else "?"
        idle = mod["idle"] if mod["idle"] < 100000 else "idle"
        print(
            f"{name:<24} {idle:>5}  {state} {mod['sendqueue']:>5} {mod['recvqueue']:>5} {services}"
        )
    return 0


def _ask(client, topic, payload=None):
    try:
        return client.rpc(topic, payload)
    except OSError as exc:
        raise CommandError(f"{topic}: {error_text(exc)}") from None


@command(
    "flux-module stats",
    "[OPTIONS] NAME",
    "Display stats on module",
    [
        Opt("parse", "p", "OBJNAME", "Parse object period-delimited object name"),
        Opt("scale", "s", "N", "Scale numeric JSON value by N"),
        Opt("type", "t", "int|double", "Convert JSON value to specified type"),
        Opt(
            "rusage",
            "R",
            "[self|children|thread]",
            "Request rusage data instead of stats",
            optional=True,
        ),
        Opt("clear", "c", usage="Clear stats on target rank"),
        Opt("clear-all", "C", usage="Clear stats on all ranks"),
    ],
    args=1,
)
def stats(opts):
    name = opts.args[0]
    client = connect()
    if opts.get("clear") or opts.get("clear-all"):
        _ask(client, f"{name}.stats-clear")
        return 0
    if "rusage" in opts:
        who = opts.all("rusage")[-1]
        answer = _ask(client, f"{name}.rusage", {"who": who} if who else None)
    else:
        answer = _ask(client, f"{name}.stats-get")
    value = answer
    if "parse" in opts:
        for key in opts.get("parse").split("."):
            if not isinstance(value, dict) or key not in value:
                raise CommandError(f"`{opts.get('parse')}' not found in response")
            value = value[key]
    print(_stat_text(value, opts.get("type"), opts.get("scale")))
    return 0


def _stat_text(value, kind, scale):
    if scale is not None:
        try:
            value = value * float(scale)
        except (TypeError, ValueError):
            raise CommandError("--scale: the value is not a number") from None
    if kind in ("int", "double"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise CommandError("stats: value is not a number")
        return str(int(value)) if kind == "int" else f"{value:f}"
    if kind is not None:
        raise CommandError("type must be int or double")
    if isinstance(value, dict):
        return json.dumps(value, indent=1, ensure_ascii=False)
    return value if isinstance(value, str) else compact(value)


@command(
    "flux-module debug",
    "[OPTIONS] NAME",
    "Get/set module debug flags",
    [
        Opt("setbit", "s", "MASK", "Set one debug flag MASK bit", kind="int"),
        Opt("clearbit", "c", "MASK", "Clear one debug flag MASK bit", kind="int"),
        Opt("set", "S", "MASK", "Set debug flags to MASK", kind="int"),
        Opt("clear", "C", usage="Set debug flags to 0"),
    ],
    args=1,
)
def debug(opts):
    op, flags = "setbit", 0
    if "clear" in opts:
        op = "clr"
    elif "set" in opts:
        op, flags = "set", opts.get("set")
    elif "clearbit" in opts:
        op, flags = "clrbit", opts.get("clearbit")
    elif "setbit" in opts:
        flags = opts.get("setbit")
    topic = f"{opts.args[0]}.debug"
    try:
        answer = connect().rpc(topic, {"op": op, "flags": flags})
    except OSError as exc:
        raise CommandError(f"{topic}: {strerror(exc)}") from None
    print(f"{answer['flags']:#x}")
    return 0


def trace(argv):
    raise CommandError(
        "trace is not part of the embedded instance: its messages never leave the process. "
        "See flux dmesg, or flux module stats"
    )


main = Group(
    "flux-module",
    "",
    [list_modules, remove, load, reload, stats, debug],
    {"unload": (remove, ""), "trace": (trace, "Trace module messages")},
)
