# SPDX-License-Identifier: LGPL-3.0-or-later
"""What is imported from where, each in a fresh interpreter.

The traps, by number:

1. A class and a submodule of one name: the first import of the submodule rebinds the package's
   name to the module.
2. Order: ``Rv1Set`` before ``ResourceSet``, ``list`` and ``status`` after it.
3. ``flux.job`` imported while ``flux.resource`` is being imported settles for no
   ``SchedResourceList``, without a message.
4. Submodules that the overlay lacks come from the installation: half of one set on top of half of
   the other (t/python/build/test_imports.py).
5. The overlay precedes the standard library for every Flux command.
"""

import os
import sys

import pytest
from fresh_python import run_in_fresh_python

import _flux

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.path.join(HERE, "..", "..", "..", "src")
BINDINGS = os.path.abspath(os.path.join(SRC, "bindings", "python"))
EMBEDDED = os.path.abspath(os.path.join(SRC, "embedded"))


@pytest.fixture
def installed(tmp_path):
    """A directory that looks like an installed flux package with parts of its own."""
    files = {
        "flux/__init__.py": "WHO = 'installed'\n",
        "flux/core/__init__.py": "",
        "flux/core/handle.py": "class Flux:\n    def __init__(self, *a, **k):\n        self.arguments = a, k\n",
        "flux/constants.py": "",
        "flux/only_installed.py": "X = 1\n",
        "flux/resource/__init__.py": "WHO = 'installed'\n",
        "flux/resource/extra.py": "Y = 2\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_embedded_path_is_our_directory_and_the_packages_whatever_is_installed(installed):
    out = run_in_fresh_python(
        "import flux; print(*flux.__path__, sep='|')", BINDINGS, EMBEDDED, installed
    )
    assert out.split("|") == [
        os.path.join(BINDINGS, "flux"),
        os.path.join(_flux.bindings(), "flux"),
    ]
    out = run_in_fresh_python(
        """
        import flux
        try:
            import flux.only_installed
        except ModuleNotFoundError as exc:
            print(exc)
        """,
        BINDINGS, EMBEDDED, installed,
    )  # fmt: skip
    assert out == "No module named 'flux.only_installed'"


def test_a_missing_package_is_named_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setenv("FLUX_SCHEDULER_BINDINGS", str(tmp_path))
    with pytest.raises(ImportError) as missing:
        _flux.bindings()
    text = f"not in {tmp_path}, which FLUX_SCHEDULER_BINDINGS names"
    assert str(missing.value).endswith(text) and "flux-python" in str(missing.value)


def test_without_the_embedded_instance_the_installed_package_is_extended(installed):
    """As FLUX_PYTHONPATH_PREPEND does on a real Flux."""
    code = """
        import flux, flux.only_installed
        h = flux.Flux("uri", flags=3)
        print(len(flux.__path__), hasattr(flux, "WHO"), isinstance(h, flux.core.handle.Flux), h.arguments)
        """
    assert run_in_fresh_python(code, BINDINGS, installed) == "2 False True (('uri',), {'flags': 3})"


def test_flux_is_a_function_and_its_error_names_the_way():
    code = """
        import flux
        try:
            flux.Flux()
        except OSError as exc:
            print(type(flux.Flux).__name__, exc.errno, exc.strerror.split(":")[0])
        """
    assert run_in_fresh_python(code, BINDINGS, EMBEDDED) == "function 2 Unable to connect to Flux"


@pytest.mark.parametrize("first", ["import flux", "import flux.core.watchers", "import flux.idset"])
def test_core_and_constants_are_there_after_any_import(first):
    code = f"{first}; print(flux.core.handle.Flux.__name__, flux.constants.FLUX_RPC_STREAMING)"
    assert run_in_fresh_python(code, BINDINGS, EMBEDDED) == "Flux 2"


def test_resource_does_not_import_job_or_the_scheduler():
    """Trap 3: flux.job.info would settle for no SchedResourceList."""
    code = "import flux.resource, sys; print([m for m in sys.modules if m.startswith(('flux.job', 'flux.scheduler'))])"
    assert run_in_fresh_python(code, BINDINGS, EMBEDDED) == "[]"


CLASSES = [
    "ResourceSet",
    "Rv1Set",
    "ResourcePool",
    "Rv1Pool",
    "ResourceCount",
    "ResourceSetImplementation",
]


def test_a_class_stays_a_class_when_its_submodule_is_imported():
    """Traps 1 and 2: the import system binds the submodule in the package, over the class of that name."""
    code = f"""
        import importlib
        import flux.resource
        before = {{name: getattr(flux.resource, name, None) for name in {CLASSES}}}
        modules = {{name: importlib.import_module("flux.resource." + name) for name in {CLASSES}}}
        for name, module in modules.items():
            cls = getattr(module, name)
            after = getattr(flux.resource, name, type)
            if not (isinstance(cls, type) and before[name] in (cls, None) and isinstance(after, type)):
                print(name, cls, before[name], after)
        """
    assert run_in_fresh_python(code, BINDINGS, EMBEDDED) == ""


@pytest.mark.parametrize(
    "first", ["list", "status", "journal", "TreePool", "ResourceSet", "Rv1Pool"]
)
def test_any_submodule_may_be_imported_first(first):
    code = f"""
        import flux.resource.{first}
        from flux.resource import ResourceSet, SchedResourceList, ResourceStatus, ResourceJournalConsumer, Rv1Set
        from flux.resource import resource_list, resource_status, ResourceCount, Rv1Pool, ResourcePool
        from flux.resource import InsufficientResources, InfeasibleRequest
        R = {{"version": 1, "execution": {{"R_lite": [], "nodelist": [""]}}}}
        print(ResourceSet(R).nnodes, callable(resource_list), callable(resource_status))
        """
    assert run_in_fresh_python(code, BINDINGS, EMBEDDED) == "0 True True"


def test_list_and_status_are_functions_of_their_own_and_modules_by_path():
    code = """
        import flux.resource, flux.resource.list, flux.resource.status
        print(flux.resource.resource_list is flux.resource.list.resource_list,
              flux.resource.resource_status is flux.resource.status.resource_status)
        """
    assert run_in_fresh_python(code, BINDINGS, EMBEDDED) == "True True"


def test_overlay_holds_no_name_of_the_standard_library():
    """Trap 5: the overlay precedes the standard library for every Flux command."""
    for directory in (BINDINGS, EMBEDDED):
        top = {name.partition(".")[0] for name in os.listdir(directory)}
        assert not top & set(
            sys.stdlib_module_names if hasattr(sys, "stdlib_module_names") else ("json", "types")
        )


def test_job_functions_are_not_replaced_by_their_modules():
    code = """
        import flux.job
        import flux.job.event, flux.job.submit, flux.job.wait, flux.job.kill, flux.job.kvs, flux.job.list, flux.job.JobID
        from flux.job import JobID, submit, wait, kill
        print(JobID("f21") + 0, callable(submit), callable(wait), callable(kill), callable(flux.job.submit))
        """
    assert run_in_fresh_python(code, BINDINGS, EMBEDDED) == "58 True True True True"
