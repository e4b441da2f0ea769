"""Load and remove broker modules in the order they depend on one another, and run rc files.

What modules there are and what each needs is told by TOML files: ``modprobe.toml`` and ``modprobe.d/*.toml`` in each of the
modprobe directories (FLUX_MODPROBE_PATH replaces them, FLUX_MODPROBE_PATH_APPEND adds to them).  An rc file is a Python file
that may define ``setup(context)`` and tasks::

    from flux.modprobe import task

    def setup(context):
        context.load_modules(["kvs", "resource"])
        context.setopt("resource", "noverify")

    @task("store-R", ranks="0", after=["kvs"], before=["resource"])
    def store_R(context):
        ...
"""

import glob
import importlib.util
import os

import flux_embedded

FIELDS = {
    "name": None,
    "module": None,
    "args": [],
    "ranks": "all",
    "provides": [],
    "requires": [],
    "needs": [],
    "before": [],
    "after": [],
    "priority": 100,
    "disabled": False,
    "exec": False,
}


class ModprobeError(Exception):
    """A modprobe file or an rc file asks for what cannot be done."""


def task(name, ranks="all", before=(), after=(), requires=(), needs=(), provides=()):
    """Mark a function of an rc file as a task.

    Args:
        name: what other tasks call it in their before and after.
        ranks: idset of the broker ranks it runs on, or "all".
        before, after: names of tasks and modules it runs before and after; ``"*"`` is all others.
        requires, needs, provides: accepted for files written for flux-core.
    """

    def mark(function):
        function.modprobe_task = Task(name, function, ranks, list(before), list(after))
        return function

    return mark


class Task:
    """One step: a function of an rc file, or the loading or removal of a module."""

    def __init__(self, name, run, ranks="all", before=(), after=(), provides=()):
        self.name = name
        self.run = run
        self.ranks = ranks
        self.before = before
        self.after = after
        self.names = {name, *provides}


def order_tasks(tasks):
    """Return `tasks` so ordered that each follows what it comes after; otherwise in the order given.

    Raises ModprobeError when they wait for one another in a circle.
    """
    follows = {t.name: set() for t in tasks}
    for t in tasks:
        for other in tasks:
            if other is t:
                continue
            if other.names.intersection(t.after) or ("*" in t.after and "*" not in other.after):
                follows[t.name].add(other.name)
            if other.names.intersection(t.before) or ("*" in t.before and "*" not in other.before):
                follows[other.name].add(t.name)
    ordered, waiting = [], list(tasks)
    done = set()
    while waiting:
        ready = next((t for t in waiting if follows[t.name] <= done), None)
        if ready is None:
            raise ModprobeError("these wait for one another: " + ", ".join(t.name for t in waiting))
        waiting.remove(ready)
        ordered.append(ready)
        done.add(ready.name)
    return ordered


class Catalog:
    """The modules that the modprobe files describe.

    Args:
        directories: where the files are; the modprobe directories by default.
        config: the instance's ``[modules]`` table: ``alternatives`` chooses among modules that provide the same, any other
            key is the name of a module or service whose entry it changes (``sched-simple.args = ["queue-depth=2"]``).

    Raises:
        ModprobeError: a file or the table asks for what cannot be done
    """

    def __init__(self, directories=None, config=None):
        self.entries = {}
        self.alternatives = {}
        for directory in directories if directories is not None else modprobe_path():
            main = os.path.join(directory, "modprobe.toml")
            dropins = sorted(glob.glob(os.path.join(directory, "modprobe.d", "*.toml")))
            for path in ([main] if os.path.exists(main) else []) + dropins:
                self.read(path)
        if config:
            self._configure(config)

    def _configure(self, config):
        if not isinstance(config, dict):
            raise ModprobeError("[modules]: expected a table")
        for name, table in config.items():
            if not isinstance(table, dict):
                raise ModprobeError(f"modules.{name}={table!r}: expected a table")
            if name == "alternatives":
                self.alternatives.update(table)
        for name, table in config.items():
            if name == "alternatives":
                continue
            entry = self.resolve(name)
            for key, value in table.items():
                if key not in FIELDS:
                    raise ModprobeError(f"modules.{name}: invalid config key {key}")
                if isinstance(FIELDS[key], list) and not (
                    isinstance(value, list) and all(isinstance(item, str) for item in value)
                ):
                    raise ModprobeError(
                        f"modules.{name}.{key}={value!r}: expected an array of strings"
                    )
                if key != "name":
                    entry[key] = value

    def read(self, path):
        """Add the entries of one TOML file; a later entry of the same name replaces an earlier one."""
        table = read_toml(path)
        entries = table.get("modules", [])
        if not isinstance(entries, list):
            raise ModprobeError(
                f"{path}: 'modules' is {type(entries).__name__}: expected [[modules]] entries"
            )
        for given in entries:
            unknown = sorted(set(given) - set(FIELDS))
            if unknown:
                raise ModprobeError(f"{path}: unknown key '{unknown[0]}' in a [[modules]] entry")
            if not isinstance(given.get("name"), str):
                raise ModprobeError(f"{path}: a [[modules]] entry has no name")
            entry = {
                key: given.get(key, list(value) if isinstance(value, list) else value)
                for key, value in FIELDS.items()
            }
            entry["module"] = entry["module"] or entry["name"]
            self.entries[entry["name"]] = entry

    def resolve(self, name):
        """Return the entry for `name`, a module or a service that modules provide.

        Of several that provide it, the configured alternative counts, then the highest priority.  Raises ModprobeError.
        """
        name = self.alternatives.get(name, name)
        if name in self.entries:
            return self.entries[name]
        providers = [
            e for e in self.entries.values() if name in e["provides"] and not e["disabled"]
        ]
        if not providers:
            raise ModprobeError(f"{name}: no such module")
        return max(providers, key=lambda e: e["priority"])

    def requirements(self, entry):
        """Return the entries that `entry` cannot do without."""
        return [self.resolve(name) for name in entry["requires"]]

    def closure(self, names):
        """Return the entries for `names` and all they require, in the order to load them."""
        found = {}

        def add(entry):
            if entry["name"] not in found:
                found[entry["name"]] = entry
                for other in self.requirements(entry):
                    add(other)

        for name in names:
            add(self.resolve(name))
        return self.in_order(found.values())

    @staticmethod
    def in_order(entries):
        """Return `entries` in the order to load them."""
        tasks = [
            Task(e["name"], e, before=e["before"], after=e["after"], provides=e["provides"])
            for e in entries
        ]
        return [t.run for t in order_tasks(tasks)]


class Context:
    """What an rc file's setup function and tasks are given."""

    def __init__(self, handle, catalog):
        self.handle = handle
        self.catalog = catalog
        self.options = {}
        self.tasks = []

    def setopt(self, module, options, overwrite=False):
        """Give `module` arguments (separated by white space) when it is loaded."""
        if overwrite:
            self.options.pop(module, None)
        self.options.setdefault(module, []).extend(options.split())

    def load_modules(self, modules):
        """Load these modules, each after what its entry names; what they require must be in the list or loaded."""
        for name in modules:
            entry = self.catalog.resolve(name)
            self.tasks.append(
                Task(
                    entry["name"],
                    lambda context, e=entry: context.load(e),
                    before=entry["before"],
                    after=entry["after"],
                    provides=entry["provides"],
                    ranks=entry["ranks"],
                )
            )

    def remove_modules(self, modules=None):
        """Remove these modules, or all that modprobe files describe, in the reverse of their loading order."""
        loaded = self.loaded()
        names = [n for n in self.catalog.entries if modules is None or n in modules]
        entries = self.catalog.in_order([self.catalog.entries[n] for n in names if n in loaded])
        previous = None
        for entry in reversed(entries):
            self.tasks.append(
                Task(
                    entry["name"],
                    lambda context, e=entry: context.remove(e),
                    after=[previous] if previous else [],
                )
            )
            previous = entry["name"]

    def loaded(self):
        """Return the names of the modules that are loaded, a set."""
        return {m["name"] for m in self.handle.rpc("module.list", {}).get()["mods"]}

    def load(self, entry):
        """Load the module of one entry now."""
        arguments = entry["args"] + self.options.get(entry["name"], [])
        payload = {"path": entry["module"], "args": arguments}
        if entry["name"] != entry["module"]:
            payload["name"] = entry["name"]
        try:
            self.handle.rpc("module.load", payload).get()
        except OSError as exc:
            raise ModprobeError(f"load {entry['name']}: {exc.strerror or exc}") from exc

    def remove(self, entry):
        """Remove the module of one entry now."""
        try:
            self.handle.rpc("module.remove", {"name": entry["name"]}).get()
        except OSError as exc:
            raise ModprobeError(f"remove {entry['name']}: {exc.strerror or exc}") from exc

    def attr_get(self, name, default=None):
        """Return a broker attribute, or `default` where it is not set."""
        try:
            return self.handle.attr_get(name)
        except FileNotFoundError:
            return default

    def run(self):
        """Run all tasks in order."""
        for step in order_tasks(self.tasks):
            # All brokers of the embedded instance are this one process, which is rank 0.
            if step.ranks == "all" or rank_in(self.handle.get_rank(), step.ranks):
                step.run(self)


def rank_in(rank, ranks):
    from flux.idset import IDset

    return rank in IDset(ranks.lstrip("<>=")) if ranks[:1] not in "<>" else True


def modprobe_path():
    """Return the modprobe directories: FLUX_MODPROBE_PATH, else our own and our schedulers', and FLUX_MODPROBE_PATH_APPEND."""
    home = os.path.dirname(os.path.abspath(flux_embedded.__file__))
    own = [
        os.path.join(home, "modprobe"),
        os.path.normpath(os.path.join(home, "..", "..", "modules")),
    ]
    named = os.environ.get("FLUX_MODPROBE_PATH", "")
    appended = os.environ.get("FLUX_MODPROBE_PATH_APPEND", "")
    return [d for d in (named.split(":") if named else own) + appended.split(":") if d]


def read_toml(path):
    """Return the content of a TOML file as a dict; raises ModprobeError."""
    try:
        import tomllib  # novm
    except ImportError:  # Python 3.9 and 3.10
        try:
            import tomli as tomllib
        except ImportError:
            raise ModprobeError(
                f"{path}: reading TOML takes Python 3.11, or the package tomli"
            ) from None
    try:
        with open(path, "rb") as stream:
            return tomllib.load(stream)
    except OSError as exc:
        raise ModprobeError(f"{path}: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ModprobeError(f"{path}: {exc}") from exc


def run_file(context, path):
    """Run the rc file `path`: its setup function, then its tasks and the modules that setup named, in order."""
    # Not under the file's own name: rc1-job is no identifier, and nobody imports it.
    spec = importlib.util.spec_from_loader("rcfile", None)
    module = importlib.util.module_from_spec(spec)
    module.__file__ = path
    try:
        with open(path, encoding="utf-8") as stream:
            code = compile(stream.read(), path, "exec")
    except OSError as exc:
        raise ModprobeError(f"{path}: {exc.strerror}") from exc
    exec(code, module.__dict__)
    for value in list(vars(module).values()):
        step = getattr(value, "modprobe_task", None)
        if step is not None:
            context.tasks.append(step)
    setup = getattr(module, "setup", None)
    if setup is not None:
        setup(context)
    context.run()
