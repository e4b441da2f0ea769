#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Build ``_flux_hwloc``, the CFFI (API mode) binding to libhwloc 2.x.

    python build.py [--output-dir DIR] [--check] [--quiet]

leaves one extension module, ``_flux_hwloc.<abi>.so`` (for the Python
that runs this), in DIR (made if missing); with DIR on
``sys.path``, ``import _flux_hwloc`` gives ``ffi`` and ``lib``. Without --output-dir it goes where it is
found from a source tree: beside this directory. Nothing is written outside DIR and a
temporary directory, so the source tree may be read-only. Compiler and linker flags come from
HWLOC_CFLAGS / HWLOC_LIBS, else from pkg-config, else ``-lhwloc``.

``--check`` builds nothing and prints one line: that it can be built, or the missing dependency.
Exit status: 0 done; 1 a dependency is missing (the message says what to install); 2 usage.

The installed module is one file: put it where ``flux.resource`` is found (it is imported by its
top-level name, and only when there is XML to read).
"""

import os
import shlex
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))

import extension  # noqa: E402

NAME = "_flux_hwloc"

CDEF = """
typedef enum {
    HWLOC_OBJ_PU, HWLOC_OBJ_PCI_DEVICE, HWLOC_OBJ_OS_DEVICE, ...
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

int hwloc_topology_init(hwloc_topology_t *topology);
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


def hwloc_flags():
    """(compile flags, link flags) as two lists; see the module's docstring for their sources."""
    cflags, libs = os.environ.get("HWLOC_CFLAGS"), os.environ.get("HWLOC_LIBS")
    if not cflags and not libs:
        cflags = extension.pkg_config("--cflags", "hwloc")
        libs = extension.pkg_config("--libs", "hwloc")
    return shlex.split(cflags or ""), shlex.split(libs or "-lhwloc")


def builder(cflags, libs):
    """The configured cffi.FFI. ImportError: no cffi for this Python."""
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(CDEF)
    ffi.set_source(NAME, SOURCE, extra_compile_args=cflags, extra_link_args=libs)
    return ffi


def missing(cflags, libs):
    """None if the extension can be built here, else a sentence about the missing dependency."""
    program = (
        "#include <Python.h>\n" + SOURCE + "int main (void) "
        "{ return hwloc_get_api_version () + flux_hwloc_local_memory (0); }\n"
    )
    problem = extension.missing()
    if problem is None and not extension.compiles(program, cflags, libs):
        problem = "libhwloc 2.x or its headers are missing (package libhwloc-dev)"
    return problem


def main(argv=None):
    args = extension.parser("Build the libhwloc binding", os.path.dirname(HERE)).parse_args(argv)
    cflags, libs = hwloc_flags()

    def make():
        return extension.build(builder(cflags, libs), args.output_dir)

    return extension.run(NAME, args, missing(cflags, libs), make)


if __name__ == "__main__":
    sys.exit(main())
