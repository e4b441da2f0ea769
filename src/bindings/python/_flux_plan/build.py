#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Build ``_flux_plan``, the compiled part of plans, with CFFI (API mode).

    python build.py [--output-dir DIR] [--check] [--quiet]

leaves one extension module, ``_flux_plan.<abi>.so`` (for the Python that runs this), in DIR (made if
missing); without --output-dir it goes where it is found from a source tree: beside this directory.
Nothing is written outside DIR and a temporary directory, so the source tree may be read-only. The
compiler is that of CC, else cc; CFLAGS count.

``--check`` builds nothing: it prints one line about the parts present or missing. Exit status: 0
done; 1 something is missing (the message says what to install); 2 usage.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))

import extension  # noqa: E402

NAME = "_flux_plan"
SOURCES = ["timeline.c", "promises.c", "availability.c"]

PRELUDE = """
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "plan.h"
"""


def builder():
    """The configured cffi.FFI. ImportError: no cffi for this Python."""
    import cffi

    ffi = cffi.FFI()
    with open(os.path.join(HERE, "plan.h"), encoding="utf-8") as header:
        ffi.cdef(header.read())
    ffi.set_source(
        NAME,
        PRELUDE,
        sources=[os.path.join(HERE, name) for name in SOURCES],
        include_dirs=[HERE],
        extra_compile_args=["-std=gnu99", "-O2", "-Wall", "-Wextra", "-Werror"],
    )
    return ffi


def main(argv=None):
    parser = extension.parser("Build the compiled part of plans", os.path.dirname(HERE))
    args = parser.parse_args(argv)
    return extension.run(
        NAME, args, extension.missing(), lambda: extension.build(builder(), args.output_dir)
    )


if __name__ == "__main__":
    sys.exit(main())
