# SPDX-License-Identifier: LGPL-3.0-or-later
"""Import traps: what has to hold of our package laid over another, and of the embedded bindings.

Each case runs in a Python of its own, because an import happens once.
"""

import ast
import os
import sys
import textwrap

import pytest
from fresh_python import run_in_fresh_python

import _flux

#: The layers of the embedded instance: each imports those before it, and none behind it.
LAYERS = ["about", "paths", "formats", "kernel", "services", "broker", "cmd"]
#: What else they may import of ``flux``: what runs in a module, and this project's own packages.
BINDINGS = {"services": ("flux.jobtap", "flux.resource"), "broker": ("flux.brokermod", "flux.core")}
#: What `flux.simulate` imports of the instance beside ``formats``: its engines run schedulers on the kernel.
ON_THE_INSTANCE = {
    "simulate/checking.py": ["cmd", "services.resource"],
    "simulate/command.py": ["cmd", "services.resource"],
    "simulate/comparing.py": ["cmd"],
    "simulate/engine/instance.py": ["broker", "kernel"],
    "simulate/engine/loop.py": ["broker", "kernel"],
    "simulate/engine/manager.py": ["kernel", "services.job_manager"],
    "simulate/engine/peers.py": ["kernel", "services.resource"],
    "simulate/failure.py": ["broker"],
    "simulate/machine.py": ["services.resource"],
    "simulate/policy.py": ["broker", "paths"],
    "simulate/results/files.py": ["kernel"],
    "simulate/run.py": ["kernel"],
    "simulate/trace.py": ["broker", "services.resource"],
    "simulate/tune_command.py": ["cmd"],
}

# What flux-core itself imports from flux.resource.
CLASSES = [
    "ResourceSet", "SchedResourceList", "ResourceStatus", "ResourceJournalConsumer", "Rv1Set", "ResourceCount", "Rv1Pool",
    "ResourcePool", "InsufficientResources", "InfeasibleRequest",
]  # fmt: skip
FUNCTIONS = ["resource_list", "resource_status"]
SUBMODULES = [
    "ResourceSet", "ResourceSetImplementation", "Rv1Set", "list", "status", "journal", "ResourcePool",
    "ResourcePoolImplementation", "Rv1Pool", "ResourceCount", "TreePool", "request", "pool.masks",
    "plan", "plan.plan", "tree.node", "hwloc.amend", "draw.text",
]  # fmt: skip

# A stand-in for an installed flux-core: packages without what is ours, and with the imports among its modules that make
# the order matter.
HOST = {
    "flux/__init__.py": "import flux.core.handle\n",
    "flux/core/__init__.py": "",
    "flux/core/handle.py": "class Flux:\n    host = True\n",
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


CHECK_NAMES = f"""
import flux.resource
for name in {CLASSES}:
    assert isinstance(getattr(flux.resource, name), type), name
for name in {FUNCTIONS}:
    assert callable(getattr(flux.resource, name)), name
"""


@pytest.mark.parametrize("first", SUBMODULES)
def test_embedded_names_stay_classes_whichever_submodule_comes_first(overlay, embedded, first):
    run_in_fresh_python(f"import flux.resource.{first}" + CHECK_NAMES, overlay, embedded)


@pytest.mark.parametrize("first", SUBMODULES)
def test_names_stay_classes_over_an_installed_flux(overlay, host, first):
    run_in_fresh_python(f"import flux.resource.{first}" + CHECK_NAMES, overlay, host)


def test_every_submodule_is_importable(overlay, embedded):
    run_in_fresh_python(
        "\n".join(f"import flux.resource.{name}" for name in SUBMODULES) + CHECK_NAMES,
        overlay,
        embedded,
    )


def test_over_an_installed_flux_the_rest_comes_from_there(overlay, host):
    code = """
        import importlib.util, flux, flux.kvs, flux.resource
        assert flux.kvs.host
        assert flux.core.handle.Flux.host
        assert isinstance(flux.Flux(), flux.core.handle.Flux)
        ours = [importlib.util.find_spec(name).origin for name in ("flux.resource", "flux.scheduler")]
        print(len(flux.__path__), flux.__path__[0], *ours)
        """
    number, first, *ours = run_in_fresh_python(code, overlay, host).split()
    assert number == "2"
    assert first == str(overlay / "flux")
    assert ours == [
        str(overlay / "flux" / name / "__init__.py") for name in ("resource", "scheduler")
    ]


def test_resource_does_not_import_job(overlay, host, embedded):
    for paths in ((overlay, host), (overlay, embedded)):
        assert (
            run_in_fresh_python(
                "import sys, flux.resource; print('flux.job' in sys.modules)", *paths
            )
            == "False"
        )


def test_job_info_finds_the_resource_list(overlay, host):
    assert (
        run_in_fresh_python("import flux.job; print(flux.job.instance_fields)", overlay, host)
        == "True"
    )
    assert (
        run_in_fresh_python(
            "import flux.resource, flux.job; print(flux.job.instance_fields)", overlay, host
        )
        == "True"
    )


def test_embedded_path_is_our_directory_and_the_packages(overlay, embedded, host):
    # Half of an installed package must not leak in, wherever it stands on the path.
    for paths in ((overlay, embedded, host), (overlay, host, embedded)):
        found = run_in_fresh_python("import flux; print(*flux.__path__)", *paths).split()
        assert found == [str(overlay / "flux"), os.path.join(_flux.bindings(), "flux")]


def test_nothing_shadows_the_standard_library(overlay, embedded):
    top = {
        path.name.split(".")[0] for directory in (overlay, embedded) for path in directory.iterdir()
    }
    standard = (
        set(sys.stdlib_module_names)
        if hasattr(sys, "stdlib_module_names")
        else {"json", "types", "resource", "cmd"}
    )
    assert not top & standard


def test_package_flux_resource_reaches_installed_submodules_it_lacks(overlay, host, tmp_path):
    extra = tmp_path / "flux" / "resource"
    extra.mkdir(parents=True)
    (extra / "site.py").write_text("here = True\n")
    assert (
        run_in_fresh_python(
            "import flux.resource.site; print(flux.resource.site.here)", overlay, host, tmp_path
        )
        == "True"
    )


def imports(path):
    """The names of all that a file imports, in functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_no_layer_of_the_instance_imports_one_above_it(embedded):
    found = []
    root = embedded / "flux_embedded"
    for path in sorted(root.rglob("*.py")):
        layer = path.relative_to(root).parts[0].removesuffix(".py")
        if layer in ("__init__", "cmd"):
            continue
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "flux_embedded" and LAYERS.index(parts[1]) > LAYERS.index(layer):
                found.append(f"{path.relative_to(root)}: {name}")
            elif parts[0] == "flux" and not name.startswith(BINDINGS.get(layer, ())):
                found.append(f"{path.relative_to(root)}: {name}")
    assert not found


def test_only_the_simulator_imports_the_instance_and_only_what_is_named(overlay):
    """Whoever writes a scheduler needs no embedded instance, and the simulator should not either."""
    found = {}
    for path in sorted((overlay / "flux").rglob("*.py")):
        parts = {
            ".".join(name.split(".")[1:3])
            if name.split(".")[1] == "services"
            else name.split(".")[1]
            for name in imports(path)
            if name.startswith("flux_embedded.")
        }
        if parts:
            found[path.relative_to(overlay / "flux").as_posix()] = parts
    beyond = {name: sorted(parts - {"formats"}) for name, parts in found.items()}
    assert {name: parts for name, parts in beyond.items() if parts} == ON_THE_INSTANCE
    assert {name.partition("/")[0] for name in found} == {"simulate"}


def test_commands_do_not_import_the_simulator(embedded):
    root = embedded / "flux_embedded" / "cmd"
    found = {
        path.name for path in root.rglob("*.py") for name in imports(path) if ".simulate" in name
    }
    assert found == {"simulate.py"}
