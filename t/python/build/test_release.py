# SPDX-License-Identifier: LGPL-3.0-or-later
"""Releases: one version everywhere, a complete wheel, and a script that refuses if a check fails."""

import ast
import base64
import csv
import fnmatch
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import shared

from flux_scheduler_version import VERSION

METADATA = "scripts/release-metadata"
REPEATED = [
    "src/bindings/python/flux_scheduler_version.py", "NEWS.md", "CITATION.cff", "debian/changelog",
    "packaging/rpm/flux-scheduler.spec", "packaging/spack/package.py", METADATA,
]  # fmt: skip


def run(*command, **more):
    """A command; both outputs in one."""
    return shared.run(*command, stderr=subprocess.STDOUT, **more)


def metadata(tree, *options):
    """The check that the version is the same everywhere in a tree."""
    return run(sys.executable, tree / METADATA, *options)


@pytest.fixture
def copy(tmp_path, srcdir):
    """A tree with nothing in it but the files that have a version."""
    for name in REPEATED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(srcdir / name, tmp_path / name)
    return tmp_path


def man_pages(srcdir):
    """The manual pages as doc/conf.py names them: ``man5/flux-config-sched.5``, ..."""
    for statement in ast.parse((srcdir / "doc" / "conf.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "man_pages":
            for page in statement.value.elts:
                name, section = page.elts[1].value, page.elts[4].value
                yield f"man{section}/{name}.{section}"


def test_every_manual_page_is_in_the_packages(srcdir):
    pages = set(man_pages(srcdir))
    assert "man5/flux-config-sched.5" in pages
    spec = (srcdir / "packaging/rpm/flux-scheduler.spec").read_text()
    debian = "\n".join(path.read_text() for path in (srcdir / "debian").glob("*.install"))
    for packaged in (
        re.findall(r"^%\{_mandir\}/(\S+)", spec, re.M),
        re.findall(r"^usr/share/man/(\S+)", debian, re.M),
    ):
        patterns = [pattern for one in packaged for pattern in (one, f"{one}/*")]
        for page in pages:
            assert any(fnmatch.fnmatch(page, one) for one in patterns), (page, packaged)


def test_the_version_is_the_same_everywhere(srcdir):
    done = metadata(srcdir)
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)


@pytest.mark.parametrize("name", REPEATED[1:-1])
def test_a_file_with_another_version_is_named(copy, name):
    text = (copy / name).read_text()
    assert VERSION in text
    (copy / name).write_text(text.replace(VERSION, "9.9.9", 1))
    done = metadata(copy)
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if line.startswith(f"{name}: 9.9.9")]


def test_an_undated_entry_is_no_release(copy):
    def said(date):
        (copy / "NEWS.md").write_text(f"# News\n\n## {VERSION} ({date})\n")
        return metadata(copy, "--final").stdout

    assert "NEWS.md" in said("not released")
    day = re.search(r"^date-released: (.*)$", (copy / "CITATION.cff").read_text(), re.M).group(1)
    assert "NEWS.md: not" not in said(day)
    log = copy / "debian" / "changelog"
    log.write_text(log.read_text().replace("UNRELEASED", "unstable", 1))
    assert said(day) == f"version {VERSION} everywhere\n"
    assert "date-released is not the date" in said("1999-12-31")


@pytest.fixture
def repository(copy, srcdir):
    """That tree as a git repository, with stand-ins for the tools of a release."""
    for name in ("git", "autoreconf", "make"):
        if shutil.which(name) is None:
            pytest.skip(f"no {name}")
    shutil.copy(srcdir / "scripts" / "release", copy / "scripts" / "release")
    (copy / "scripts" / "check").write_text('#!/bin/sh\nexit "$CHECK"\n')
    (copy / "scripts" / "check").chmod(0o755)
    # make distcheck fails, if it comes to that.
    (copy / "Makefile").write_text("distcheck:\n\t@exit 1\n")
    (copy / ".gitignore").write_text("/dist/\n/dist.part/\n/tools/\n")
    (copy / "tools").mkdir()
    assert run("git", "init", "-q", cwd=copy).returncode == 0
    assert run("git", "add", ".", cwd=copy).returncode == 0
    assert commit(copy).returncode == 0
    return copy


def commit(repository):
    author = ("-c", "user.name=t", "-c", "user.email=t@t")
    return run("git", *author, "commit", "-qam", "t", cwd=repository)


def release(repository, check="0"):
    options = ("--rehearsal", "--without=deb", "--without=rpm")
    env = {**os.environ, "CHECK": check}
    return run("sh", repository / "scripts" / "release", *options, env=env)


def test_nothing_is_released_where_a_check_is_red(repository):
    done = release(repository, check="1")
    assert done.returncode == 1
    assert "scripts/check is red; nothing is released" in done.stdout
    assert not list(repository.glob("dist*"))
    done = release(repository)
    assert "make distcheck is red" in done.stdout and done.returncode == 1
    assert not list(repository.glob("dist*"))


def test_nothing_is_released_from_a_changed_tree_or_with_two_versions(repository):
    (repository / "new").write_text("")
    assert "the tree has changes" in release(repository).stdout
    (repository / "new").unlink()
    (repository / "CITATION.cff").write_text("version: 9.9.9\n")
    commit(repository)
    done = release(repository)
    assert "the version is not the same everywhere" in done.stdout and done.returncode == 1


@pytest.fixture(scope="module")
def wheel(srcdir, tmp_path_factory):
    """The wheel, and the module that has built it."""
    path = srcdir / "packaging" / "wheel" / "wheel_backend.py"
    spec = importlib.util.spec_from_file_location("wheel_backend", path)
    backend = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(backend)
    except ModuleNotFoundError as exc:
        pytest.skip(f"no {exc.name}")
    directory = tmp_path_factory.mktemp("wheel")
    return directory / backend.build_wheel(directory), backend


def test_one_source_makes_one_wheel(wheel, tmp_path):
    path, backend = wheel
    assert (tmp_path / backend.build_wheel(tmp_path)).read_bytes() == path.read_bytes()
    assert path.name == f"flux_scheduler-{VERSION}-py3-none-any.whl"


def test_the_wheel_records_its_files(wheel):
    archive = zipfile.ZipFile(wheel[0])
    record = archive.read(f"flux_scheduler-{VERSION}.dist-info/RECORD").decode()
    rows = list(csv.reader(record.splitlines()))
    assert sorted(row[0] for row in rows) == sorted(archive.namelist())
    for name, digest, size in rows:
        if digest:
            data = archive.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={found}", str(len(data)))


def test_the_wheel_pins_the_bindings_that_the_tree_fetches(wheel, srcdir):
    text = zipfile.ZipFile(wheel[0]).read(f"flux_scheduler-{VERSION}.dist-info/METADATA").decode()
    pinned = re.search(r"^version=(.*)$", (srcdir / "scripts/flux-python").read_text(), re.M)
    assert f"Requires-Dist: flux-python=={pinned.group(1)}\n" in text


def test_the_simulator_runs_from_the_wheel_alone(wheel, tmp_path):
    """Unpacked, and with nothing of the source tree but flux-python; t0082-wheel.t has pip install it."""
    import _flux

    zipfile.ZipFile(wheel[0]).extractall(tmp_path)
    env = dict(os.environ, PYTHONPATH=str(tmp_path), FLUX_SCHEDULER_BINDINGS=_flux.bindings())
    code = "import sys, flux_scheduler; sys.exit(flux_scheduler.main())"
    done = run(
        sys.executable, "-c", code, "sample", "--jobs=30", "-q",
        "--scheduler=sched-fifo", "--scheduler=sched-backfill", env=env, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "sched-fifo" in done.stdout and "sched-backfill" in done.stdout
    code = "import flux_scheduler, flux.simulate; print(flux.simulate.__file__)"
    done = run(sys.executable, "-c", code, env=env, cwd=tmp_path)
    assert done.stdout.startswith(str(tmp_path)), done.stdout
