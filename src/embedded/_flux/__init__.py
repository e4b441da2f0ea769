"""The C API of flux-core, as its Python bindings call it, on the kernel of `flux_engine`.

The package ``flux`` of flux-core (on PyPI: ``flux-python``) uses three modules that cffi builds from C
libraries: ``_flux._core``, ``_flux._idset`` and ``_flux._hostlist``, each with ``ffi`` and ``lib``.  These are the same three in
Python.  The package runs on them unchanged: as a client of the embedded instance, and in its modules.

Read `ctype`, `cdata` and `function` for the mapping of C functions to Python; then the functions. A pointer is an object of the kernel,
or of one of these files; a ``char *`` is bytes; an array, such as those that functions put their results in, is a list.
"""

import os


def bindings():
    """The directory that holds the package ``flux`` of flux-core.

    It is the one that FLUX_SCHEDULER_BINDINGS names, or ``flux-python`` beside this directory's parent in an installation, or
    ``.cache/flux-python`` of the source or build tree.

    Raises:
        ImportError: there is none; the text says how to get it
    """
    base = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    build = os.environ.get("FLUX_BUILD_DIR") or os.path.dirname(base)
    named = os.environ.get("FLUX_SCHEDULER_BINDINGS")
    for directory in (
        [named]
        if named
        else [
            os.path.join(base, "flux-python"),
            os.path.join(os.path.dirname(base), ".cache", "flux-python"),
            os.path.join(build, ".cache", "flux-python"),
        ]
    ):
        if os.path.isfile(os.path.join(directory, "flux", "core", "handle.py")):
            return directory
    where = (
        f"not in {named}, which FLUX_SCHEDULER_BINDINGS names"
        if named
        else "run scripts/flux-python (or make)"
    )
    raise ImportError(f"the package flux-python of flux-core's Python bindings is missing: {where}")
