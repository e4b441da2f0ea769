#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Build ``_flux_hwloc``, the CFFI (API mode) binding to libhwloc 2.x.

    python build.py [--output-dir DIR] [--cflags FLAGS] [--libs FLAGS] [--check] [--quiet]

leaves one extension module, ``_flux_hwloc.<abi>.so`` (for the Python
that runs this), in DIR (made if missing); with DIR on
``sys.path``, ``import _flux_hwloc`` gives ``ffi`` and ``lib``. Without --output-dir it goes where it is
found from a source tree: beside this directory. Nothing is written outside DIR and a
temporary directory, so the source tree may be read-only. Compiler and linker flags come from
``--cflags`` / ``--libs``, else from HWLOC_CFLAGS / HWLOC_LIBS, else from pkg-config, else ``-lhwloc``.

``--check`` builds nothing: it says on one line what is there or what is missing.
Exit status: 0 done; 1 something is missing (the message says what to install); 2 usage.

The installed module is one file: put it where ``flux.resource`` is found (it is imported by its
top-level name, and only when there is XML to read).
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

NAME = "_flux_hwloc"

CDEF = """
#define HWLOC_API_VERSION ...
#define HWLOC_TYPE_DEPTH_NUMANODE ...
#define HWLOC_TYPE_DEPTH_PCI_DEVICE ...
#define HWLOC_TYPE_DEPTH_OS_DEVICE ...

typedef enum {
    HWLOC_OBJ_MACHINE, HWLOC_OBJ_PACKAGE, HWLOC_OBJ_CORE, HWLOC_OBJ_PU, HWLOC_OBJ_GROUP,
    HWLOC_OBJ_NUMANODE, HWLOC_OBJ_BRIDGE, HWLOC_OBJ_PCI_DEVICE, HWLOC_OBJ_OS_DEVICE,
    HWLOC_OBJ_MISC, ...
} hwloc_obj_type_t;

enum hwloc_type_filter_e {
    HWLOC_TYPE_FILTER_KEEP_STRUCTURE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT, ...
};

typedef struct hwloc_topology *hwloc_topology_t;
typedef struct hwloc_bitmap_s *hwloc_bitmap_t;
typedef struct hwloc_bitmap_s *hwloc_cpuset_t;

struct hwloc_obj {
    hwloc_obj_type_t type;
    unsigned logical_index;
    struct hwloc_obj *parent;
    struct hwloc_obj *next_sibling;
    struct hwloc_obj *first_child;
    struct hwloc_obj *memory_first_child;
    struct hwloc_obj *io_first_child;
    hwloc_cpuset_t cpuset;
    ...;
};
typedef struct hwloc_obj *hwloc_obj_t;

unsigned hwloc_get_api_version(void);
int hwloc_topology_init(hwloc_topology_t *topology);
int hwloc_topology_set_flags(hwloc_topology_t topology, unsigned long flags);
int hwloc_topology_set_xmlbuffer(hwloc_topology_t topology, const char *buffer, int size);
int hwloc_topology_set_io_types_filter(hwloc_topology_t topology,
                                       enum hwloc_type_filter_e filter);
int hwloc_topology_set_icache_types_filter(hwloc_topology_t topology,
                                           enum hwloc_type_filter_e filter);
int hwloc_topology_load(hwloc_topology_t topology);
void hwloc_topology_destroy(hwloc_topology_t topology);
int hwloc_topology_export_xmlbuffer(hwloc_topology_t topology, char **buffer, int *length,
                                    unsigned long flags);
void hwloc_free_xmlbuffer(hwloc_topology_t topology, char *buffer);
int hwloc_topology_set_synthetic(hwloc_topology_t topology, const char *description);
hwloc_obj_t hwloc_get_root_obj(hwloc_topology_t topology);
int hwloc_get_nbobjs_by_depth(hwloc_topology_t topology, int depth);
hwloc_obj_t hwloc_get_obj_by_depth(hwloc_topology_t topology, int depth, unsigned index);
const char *hwloc_obj_type_string(hwloc_obj_type_t type);
const char *hwloc_obj_get_info_by_name(hwloc_obj_t obj, const char *name);
int hwloc_bitmap_taskset_asprintf(char **text, hwloc_bitmap_t set);
void free(void *);

uint64_t flux_hwloc_local_memory(hwloc_obj_t obj);
"""

# The attribute union is not worth describing for one field of it.
SOURCE = """
#include <stdint.h>
#include <stdlib.h>
#include <hwloc.h>

#if HWLOC_API_VERSION < 0x00020000 || HWLOC_API_VERSION >= 0x00030000
#error "libhwloc 2.x is needed"
#endif

static uint64_t flux_hwloc_local_memory (hwloc_obj_t obj)
{
    if (obj->type != HWLOC_OBJ_NUMANODE || !obj->attr)
        return 0;
    return obj->attr->numanode.local_memory;
}
"""


def hwloc_flags(cflags=None, libs=None):
    """(compile flags, link flags) as two lists; see the module's text for where they come from."""
    cflags = cflags if cflags is not None else os.environ.get("HWLOC_CFLAGS")
    libs = libs if libs is not None else os.environ.get("HWLOC_LIBS")
    if cflags is None and libs is None:
        cflags, libs = pkg_config("--cflags"), pkg_config("--libs")
    return shlex.split(cflags or ""), shlex.split(libs or "-lhwloc")


def pkg_config(what):
    """Output of ``pkg-config WHAT hwloc``, or None where that does not work."""
    tool = os.environ.get("PKG_CONFIG", "pkg-config")
    try:
        done = subprocess.run(
            [tool, what, "hwloc"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode().strip()


def builder(cflags, libs):
    """The configured cffi.FFI. ImportError: no cffi for this Python."""
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(CDEF)
    ffi.set_source(NAME, SOURCE, extra_compile_args=cflags, extra_link_args=libs)
    return ffi


def missing(cflags, libs):
    """None if the extension can be built here, else one sentence that says what to install."""
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
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "probe.c")
        with open(path, "w", encoding="utf-8") as probe:
            probe.write(
                "#include <Python.h>\n" + SOURCE + "int main (void) "
                "{ return hwloc_get_api_version () + flux_hwloc_local_memory (0); }\n"
            )
        import sysconfig

        include = "-I" + sysconfig.get_paths()["include"]
        command = compiler + cflags + [include, path, "-o", os.path.join(tmp, "probe")] + libs
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
    text = done.stdout.decode(errors="replace")
    if done.returncode == 0:
        return None
    if "Python.h" in text:
        return "the Python headers are missing (python3-dev)"
    return "libhwloc 2.x or its headers are missing (libhwloc-dev)"


def build(output_dir, cflags, libs, verbose=False):
    """Compile, and move the extension into ``output_dir``. Returns its path."""
    ffi = builder(cflags, libs)
    os.makedirs(output_dir, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        made = ffi.compile(tmpdir=tmp, verbose=verbose)
        # A reader may be importing the old one: put the new one beside it, then rename.
        target = os.path.join(output_dir, os.path.basename(made))
        shutil.copy2(made, target + ".new")
        os.replace(target + ".new", target)
    return target


def main(argv=None):
    parser = argparse.ArgumentParser(description="Build the libhwloc binding")
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--output-dir", metavar="DIR", default=os.path.dirname(here))
    parser.add_argument("--cflags", help="compiler flags for libhwloc")
    parser.add_argument("--libs", help="linker flags for libhwloc")
    parser.add_argument("--check", action="store_true", help="only say whether it can be built")
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args(argv)
    cflags, libs = hwloc_flags(args.cflags, args.libs)
    problem = missing(cflags, libs)
    if problem:
        print(f"{NAME}: not built: {problem}", file=sys.stderr)
        return 1
    if args.check:
        print(f"{NAME}: can be built")
        return 0
    path = build(args.output_dir, cflags, libs)
    if not args.quiet:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
