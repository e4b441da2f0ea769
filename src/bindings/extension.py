# SPDX-License-Identifier: LGPL-3.0-or-later
"""Shared code of the scripts that build C code with cffi.

``configure`` runs them to find missing dependencies, and ``make`` to build: on the Python that will
load the extension, with nothing else installed. They add this directory to ``sys.path`` first.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile


def missing():
    """Return one sentence about the dependency to install, or None if extensions can be built here."""
    try:
        import cffi  # noqa: F401
    except ImportError:
        return f"{sys.executable} has no cffi (pip install cffi, or python3-cffi)"
    if sys.version_info >= (3, 12):
        try:
            import setuptools  # noqa: F401
        except ImportError:
            return f"{sys.executable} has no setuptools, which cffi needs from Python 3.12 on"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if not shutil.which(compiler[0]):
        return f"no C compiler ({compiler[0]})"
    if not compiles("#include <Python.h>\n"):
        return "the Python headers are missing (package python3-dev)"
    return None


def compiles(source, cflags=(), libs=None):
    """Whether the compiler accepts a C source; with ``libs``, whether it also links to a program.

    Args:
        source (str): the source; for a program, with main()
        cflags, libs (list): flags for the compiler and the linker
    """
    include = "-I" + sysconfig.get_paths()["include"]
    command = [*shlex.split(os.environ.get("CC", "cc")), *cflags, include]
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "probe.c")
        with open(path, "w", encoding="utf-8") as probe:
            probe.write(source)
        if libs is None:
            command += ["-fsyntax-only", path]
        else:
            command += [path, "-o", os.path.join(tmp, "probe"), *libs]
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
    return done.returncode == 0


def pkg_config(what, *packages):
    """Return the output of ``pkg-config WHAT PACKAGE...``, or None if it fails."""
    tool = os.environ.get("PKG_CONFIG", "pkg-config")
    try:
        done = subprocess.run(
            [tool, what, *packages], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode().strip()


def build(ffi, output_dir, name=None, verbose=False, **options):
    """Compile an extension, and move it into ``output_dir``, which is made if it is not there.

    Args:
        ffi (cffi.FFI): with source
        name (str): of the file; default: as cffi names it
        options: for ``ffi.compile()``

    Returns:
        str: its path
    """
    os.makedirs(output_dir, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        made = ffi.compile(tmpdir=tmp, verbose=verbose, **options)
        target = os.path.join(output_dir, name or os.path.basename(made))
        # The old file may be in use, which must not be changed: put the new one beside it, then
        # rename.
        shutil.copy2(made, target + ".new")
        os.replace(target + ".new", target)
    return target


def parser(description, output_dir):
    """Return an ``argparse.ArgumentParser`` with the arguments shared by the scripts.

    Args:
        output_dir (str): default of ``--output-dir``
    """
    new = argparse.ArgumentParser(description=description)
    new.add_argument("--output-dir", metavar="DIR", default=output_dir)
    new.add_argument("--check", action="store_true", help="only say whether it can be built")
    new.add_argument("--quiet", action="store_true")
    return new


def run(name, args, problem, make):
    """Run a build script by its parsed arguments.

    Args:
        name (str): name of the extension
        args (argparse.Namespace): from its `parser`
        problem (str or None): the missing dependency
        make (function): builds it, and returns its path

    Returns:
        int: the exit status: 0, or 1 if something is missing
    """
    if problem:
        print(f"{name}: not built: {problem}", file=sys.stderr)
        return 1
    if args.check:
        if not args.quiet:
            print(f"{name}: can be built with {sys.executable}")
        return 0
    path = make()
    if not args.quiet:
        print(path)
    return 0
