# SPDX-License-Identifier: LGPL-3.0-or-later
"""The build backend of pyproject.toml (PEP 517): what ``pip install .`` and ``pip wheel .`` call.

The wheel is pure Python: the directories of src/ that make the product, side by side as they are there, below the package ``flux_scheduler``, since
everything finds its neighbours by relative path and modules are files that a broker loads, not packages. No
backend for packages has a word for that layout; a wheel is a zip file with a list of what is in it.
"""

import base64
import hashlib
import io
import os
import re
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.9 and 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
#: Directories of the source tree, and where their files go below the package.
TREES = {
    "src/bindings/python": "bindings/python",
    # Not the embedded instance, but the bindings that the simulator runs on without a Flux.
    "src/embedded/_flux": "embedded/_flux",
    "src/modules": "modules",
    "src/jobtap/examples": "jobtap/examples",
}
#: Not in a wheel: they are C, to be compiled for one Python. All goes without them.
LEFT_OUT = ("_flux_hwloc", "_flux_plan")


def _project():
    """The table [project], with the version and the dependencies, which are stated elsewhere in the tree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    project["version"] = _find(
        ROOT / "src/bindings/python/flux_scheduler_version.py", r'^VERSION = "(.*)"$'
    )
    # The release that the C API in Python was written for and tested with.
    bindings = _find(ROOT / "scripts/flux-python", r"^version=(\S+)$")
    project["dependencies"] = [
        f"flux-python=={bindings}",
        "greenlet",
        "ply",
        "PyYAML",
        'tomli; python_version < "3.11"',
    ]
    return project


def _find(path, pattern):
    return re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE).group(1)


def _metadata(project):
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Author: {project['authors'][0]['name']}",
        f"License: {project['license']['text']}",
        f"Requires-Python: {project['requires-python']}",
        f"Keywords: {','.join(project['keywords'])}",
        *(f"Classifier: {text}" for text in project["classifiers"]),
        *(f"Requires-Dist: {text}" for text in project["dependencies"]),
        "Description-Content-Type: text/markdown",
        "",
        (ROOT / project["readme"]).read_text(encoding="utf-8"),
    ]
    return "\n".join(lines)


def _files():
    """(name below the package, file) of all that is installed, in the order of names."""
    found = [("__init__.py", Path(__file__).with_name("flux_scheduler.py"))]
    for source, target in TREES.items():
        base = ROOT / source
        for path in sorted(base.rglob("*")):
            inner = path.relative_to(base)
            if (
                path.is_file()
                and not any(name in path.as_posix() for name in LEFT_OUT)
                and "__pycache__" not in inner.parts
                and path.suffix not in (".pyc", ".so", ".o")
                and not path.name.endswith(("-stamp", "~"))
                and not path.name.startswith(".")
            ):
                found.append((f"{target}/{inner.as_posix()}", path))
    return found


def _dist_info(project):
    return f"flux_scheduler-{project['version']}.dist-info"


def _write_dist_info(project, write):
    info = _dist_info(project)
    write(f"{info}/METADATA", _metadata(project).encode())
    write(
        f"{info}/WHEEL",
        b"Wheel-Version: 1.0\nGenerator: flux-scheduler\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    )
    scripts = "".join(f"{name} = {where}\n" for name, where in project["scripts"].items())
    write(f"{info}/entry_points.txt", f"[console_scripts]\n{scripts}".encode())
    for name in ("LICENSE", "LICENSE.GPL"):
        write(f"{info}/{name}", (ROOT / name).read_bytes())


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Write the wheel; returns its name."""
    project = _project()
    name = f"flux_scheduler-{project['version']}-py3-none-any.whl"
    # One source gives one file, byte for byte: no times but the one that SOURCE_DATE_EPOCH may name.
    date = time.gmtime(max(315532800, int(os.environ.get("SOURCE_DATE_EPOCH", 315532800))))[:6]
    record = []
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:

        def write(path, data):
            entry = zipfile.ZipInfo(path, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}\n")

        for path, file in _files():
            write(f"flux_scheduler/{path}", file.read_bytes())
        _write_dist_info(project, write)
        path = f"{_dist_info(project)}/RECORD"
        record.append(f"{path},,\n")
        entry = zipfile.ZipInfo(path, date)
        entry.external_attr = 0o100644 << 16
        wheel.writestr(entry, "".join(record))
    return name


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Write the metadata alone, which is all that pip needs to know the dependencies; returns its directory."""
    project = _project()

    def write(path, data):
        target = Path(metadata_directory) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    _write_dist_info(project, write)
    return _dist_info(project)


def build_sdist(sdist_directory, config_settings=None):
    """Write the source distribution, the files that scripts/manifest lists; returns its name."""
    project = _project()
    base = f"flux_scheduler-{project['version']}"
    listed = subprocess.run(
        [ROOT / "scripts" / "manifest"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split("\n")
    with tarfile.open(
        Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT
    ) as archive:
        for name in filter(None, listed):
            archive.add(ROOT / name, f"{base}/{os.path.normpath(name)}")
        info = tarfile.TarInfo(f"{base}/PKG-INFO")
        data = _metadata(project).encode()
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return f"{base}.tar.gz"
