# SPDX-License-Identifier: LGPL-3.0-or-later
"""Imports of our package laid over an installed flux-core, and of the embedded bindings.

Each case runs in a Python of its own, because an import happens once.
"""

import ast
import functools
import graphlib
import os
import sys
import textwrap

import pytest
from shared import run

import _flux

#: The layers of the engine, and of the embedded instance on it: each imports those before it, and none behind it.
LAYERS = {
    "flux_engine": ["paths", "formats", "kernel", "modules", "resource", "job_manager", "command"],
    "flux_embedded": ["about", "services", "broker", "cmd"],
}
#: Other parts of ``flux`` they may import: those that run in a module, and this project's own packages.
BINDINGS = {
    "formats": ("flux.resource.pool",),
    "modules": ("flux.brokermod",),
    "resource": ("flux.resource",),
    "services": ("flux.job", "flux.queue", "flux.resource", "flux.util"),
    "broker": ("flux.brokermod", "flux.core", "flux.util"),
}
#: The parts of the product that import the embedded instance.
ON_THE_INSTANCE = {"flux/simulate/engine/instance.py"}

# Imports from flux.resource by flux-core itself and by sites.
CLASSES = [
    "ResourceSet", "SchedResourceList", "ResourceStatus", "ResourceJournalConsumer", "Rv1Set", "ResourceCount", "Rv1Pool",
    "ResourcePool", "InsufficientResources", "InfeasibleRequest", "ResourceSetImplementation",
    "ResourcePoolImplementation", "ResourceRequest",
]  # fmt: skip
FUNCTIONS = ["resource_list", "resource_status"]
MODULES = ["list", "status", "journal"]
SUBMODULES = [
    "ResourceSet", "ResourceSetImplementation", "Rv1Set", "list", "status", "journal", "ResourcePool",
    "ResourcePoolImplementation", "Rv1Pool", "ResourceCount", "TreePool", "request", "pool.masks",
    "plan", "plan.plan", "tree.node", "hwloc.amend", "draw.text",
]  # fmt: skip

# A stand-in for an installed flux-core: packages without this project's, and with the imports among its modules that make
# the order matter.
HOST = {
    "flux/__init__.py": "import flux.core.handle\n",
    "flux/core/__init__.py": "",
    "flux/core/handle.py": """
        class Flux:
            host = True
            def __init__(self, *args, **kwargs):
                self.arguments = args, kwargs
        """,
    "flux/idset.py": "class IDset(str):\n    pass\n",
    "flux/hostlist.py": "class Hostlist(str):\n    pass\n",
    "flux/kvs.py": "host = True\n",
    "flux/constants.py": "host = True\n",
    "flux/job/__init__.py": "from flux.job.info import instance_fields\n",
    "flux/job/info.py": """
        try:
            from flux.resource import SchedResourceList
        except ImportError:
            SchedResourceList = None
        instance_fields = SchedResourceList is not None
        """,
    "flux/resource/__init__.py": "raise ImportError('the installed flux.resource was imported, not the overlay')\n",
    "flux/resource/Rv1Set.py": "class Rv1Set:\n    pass\n",
    "flux/resource/ResourceSetImplementation.py": "class ResourceSetImplementation:\n    pass\n",
    "flux/resource/ResourceSet.py": """
        from flux.resource import Rv1Set
        assert isinstance(Rv1Set, type), "flux.resource.Rv1Set is a module"
        class ResourceSet:
            pass
        """,
    "flux/resource/list.py": """
        from flux.resource import ResourceSet
        assert isinstance(ResourceSet, type), "flux.resource.ResourceSet is a module"
        class SchedResourceList:
            pass
        def resource_list():
            pass
        """,
    "flux/resource/status.py": """
        from flux.resource import ResourceSet, SchedResourceList
        class ResourceStatus:
            pass
        def resource_status():
            pass
        """,
    "flux/resource/journal.py": "class ResourceJournalConsumer:\n    pass\n",
}


def run_in_fresh_python(code, *paths):
    """The output of a program in a separate interpreter, with only these directories ahead of the standard library."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "FLUX_URI")}
    env["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    done = run(sys.executable, "-B", "-c", textwrap.dedent(code), env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    directory = tmp_path_factory.mktemp("host")
    for name, text in HOST.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return directory


@pytest.fixture(scope="module")
def overlay(srcdir):
    return srcdir / "src" / "bindings" / "python"


@pytest.fixture(scope="module")
def embedded(srcdir):
    return srcdir / "src" / "embedded"


#: Each submodule is the first to be imported, in a child of one interpreter.
EACH_FIRST = f"""
import dataclasses, importlib, json, os, re, typing
for first in {SUBMODULES}:
    if os.fork():
        assert os.wait()[1] == 0, first
        continue
    importlib.import_module("flux.resource." + first)
    import flux.resource
    for name in {CLASSES}:
        assert isinstance(getattr(flux.resource, name), type), name
    for name in {FUNCTIONS}:
        assert callable(getattr(flux.resource, name)), name
    for name in {MODULES}:
        assert getattr(flux.resource, name).__name__ == "flux.resource." + name
    break
"""


@pytest.mark.parametrize("below", ["embedded", "host"])
def test_names_stay_classes_whichever_submodule_comes_first(overlay, below, request):
    run_in_fresh_python(EACH_FIRST, overlay, request.getfixturevalue(below))


def test_over_an_installed_flux_the_rest_comes_from_there(overlay, host):
    code = """
        import importlib.util, flux, flux.kvs, flux.resource
        assert flux.kvs.host
        assert flux.core.handle.Flux.host
        h = flux.Flux("uri", flags=3)
        assert isinstance(h, flux.core.handle.Flux) and h.arguments == (("uri",), {"flags": 3})
        ours = [importlib.util.find_spec(name).origin for name in ("flux.resource", "flux.scheduler")]
        print(len(flux.__path__), flux.__path__[0], *ours)
        """
    ours = [overlay / "flux" / name / "__init__.py" for name in ("resource", "scheduler")]
    expected = ["2", *map(str, [overlay / "flux", *ours])]
    assert run_in_fresh_python(code, overlay, host).split() == expected


def test_resource_imports_neither_job_nor_the_scheduler(overlay, host, embedded):
    code = """
        import sys, flux.resource
        print([name for name in sys.modules if name.startswith(("flux.job", "flux.scheduler"))])
        """
    for paths in ((overlay, host), (overlay, embedded)):
        assert run_in_fresh_python(code, *paths) == "[]"


@pytest.mark.parametrize("first", ["flux.job", "flux.resource, flux.job"])
def test_job_info_finds_the_resource_list(overlay, host, first):
    code = f"import {first}; print(flux.job.instance_fields)"
    assert run_in_fresh_python(code, overlay, host) == "True"


def test_embedded_path_is_our_directory_and_the_packages(overlay, embedded, host):
    # Half of an installed package must not leak in, wherever it stands on the path.
    for paths in ((overlay, embedded, host), (overlay, host, embedded)):
        found = run_in_fresh_python("import flux; print(*flux.__path__)", *paths).split()
        assert found == [str(overlay / "flux"), os.path.join(_flux.bindings(), "flux")]


def test_flux_is_a_function_and_its_error_names_the_way(overlay, embedded):
    code = """
        import flux
        try:
            flux.Flux()
        except OSError as exc:
            print(type(flux.Flux).__name__, exc.errno, exc.strerror.split(":")[0])
        """
    assert run_in_fresh_python(code, overlay, embedded) == "function 2 Unable to connect to Flux"


@pytest.mark.parametrize("first", ["import flux", "import flux.core.watchers", "import flux.idset"])
def test_core_and_constants_are_there_after_any_import(overlay, embedded, first):
    code = f"{first}; print(flux.core.handle.Flux.__name__, flux.constants.FLUX_RPC_STREAMING)"
    assert run_in_fresh_python(code, overlay, embedded) == "Flux 2"


def test_a_missing_package_is_named_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setenv("FLUX_SCHEDULER_BINDINGS", str(tmp_path))
    with pytest.raises(ImportError) as missing:
        _flux.bindings()
    text = f"not in {tmp_path}, which FLUX_SCHEDULER_BINDINGS names"
    assert str(missing.value).endswith(text) and "flux-python" in str(missing.value)


def test_nothing_shadows_the_standard_library(overlay, embedded):
    top = {path.name.split(".")[0] for room in (overlay, embedded) for path in room.iterdir()}
    standard = getattr(sys, "stdlib_module_names", {"json", "types", "resource", "cmd"})
    assert not top & set(standard)


def test_package_flux_resource_reaches_installed_submodules_it_lacks(overlay, host, tmp_path):
    extra = tmp_path / "flux" / "resource"
    extra.mkdir(parents=True)
    (extra / "site.py").write_text("here = True\n")
    code = "import flux.resource.site; print(flux.resource.site.here)"
    assert run_in_fresh_python(code, overlay, host, tmp_path) == "True"


@functools.cache
def imports(path):
    """The names of all that a file imports, in functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{name.name}" for name in node.names)
    return found


def imports_below(root):
    """Yield (file, name that it imports) of all files below a directory."""
    for path in sorted(root.rglob("*.py")):
        for name in imports(path):
            yield path.relative_to(root), name


@pytest.mark.parametrize("package", LAYERS)
def test_no_layer_imports_one_above_it(overlay, embedded, package):
    found = []
    layers = LAYERS[package]
    root = {"flux_engine": overlay, "flux_embedded": embedded}[package] / package
    for path, name in imports_below(root):
        layer = path.parts[0].removesuffix(".py")
        if layer in ("__init__", "cmd"):
            continue
        parts = name.split(".")
        above = parts[0] == package and layers.index(parts[1]) > layers.index(layer)
        other = parts[0] == "flux" and not name.startswith(BINDINGS.get(layer, ()))
        if above or other:
            found.append(f"{path}: {name}")
    assert not found


def test_the_product_does_without_the_embedded_instance(overlay, embedded):
    """But for ``--engine=instance``; neither the wheel nor a real Flux has to install it."""
    found = {
        f"{room.name}/{path}"
        for room in (overlay / "flux", overlay / "flux_engine", embedded / "_flux")
        for path, name in imports_below(room)
        if name.partition(".")[0] == "flux_embedded"
    }
    assert found == ON_THE_INSTANCE


def of_the_engine(overlay):
    """(file, name imported from the engine) of all files of the product."""
    product = imports_below(overlay / "flux")
    return [(path, name) for path, name in product if name.partition(".")[0] == "flux_engine"]


def test_schedulers_and_pools_do_without_the_engine(overlay):
    """The command ``flux sched`` reads a configuration as the instance does, and jobtap plugins count resources as it does."""
    rooms = {path.parts[: 1 + (path.parts[0] == "scheduler")] for path, _ in of_the_engine(overlay)}
    parts = [("scheduler", "testing"), ("scheduler", "command")]
    assert rooms == {("jobtap",), ("simulate",), *parts}


def test_tests_of_a_scheduler_need_no_greenlets(overlay, host):
    """The Python of a real Flux has none."""
    of_tests = [
        name for path, name in of_the_engine(overlay) if path.parts[:2] == ("scheduler", "testing")
    ]
    modules = sorted({name.rpartition(".")[0] for name in of_tests})
    code = "import sys; sys.modules['greenlet'] = None\n"
    run_in_fresh_python(code + "\n".join(f"import {name}" for name in modules), overlay, host)


def test_commands_do_not_import_the_simulator(embedded):
    commands = imports_below(embedded / "flux_embedded" / "cmd")
    assert [path for path, name in commands if ".simulate" in name] == []


def test_no_files_import_each_other_in_a_ring(srcdir):
    """Imports for types and within functions count: no file needs a file above it to be read."""
    src = srcdir / "src"
    paths = {
        ".".join(path.relative_to(top).with_suffix("").parts).removesuffix(".__init__"): path
        for top in (src / "bindings" / "python", src / "embedded")
        for path in top.rglob("*.py")
    }
    files = {}
    for name, path in paths.items():
        # Of a name that is no file, the file that has it.
        found = {one if one in paths else one.rpartition(".")[0] for one in imports(path)}
        files[name] = found & paths.keys() - {name}
    assert len(files) > 200
    graphlib.TopologicalSorter(files).prepare()
