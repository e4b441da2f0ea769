#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Build ``python.so``, the jobtap plugin in which a real job manager runs Python plugins.

    python build.py [--output-dir DIR] [--overlay DIR] [--installed-overlay DIR] [--bindings DIR]
    [--check] [--quiet]

The Python that runs this script is the one that python.so starts in the job manager. It needs a
shared library (Python configured with ``--enable-shared``), the headers of Python, and cffi. The
headers of Flux and jansson are found by pkg-config, or given by FLUX_CORE_CFLAGS and
FLUX_CORE_LIBS. Nothing is written outside DIR and a temporary directory.

``--check`` builds nothing, and prints the missing dependency on one line. Exit status: 0 done; 1 a
dependency is missing; 2 usage.
"""

import os
import shlex
import sys
import sysconfig

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "bindings"))

import extension  # noqa: E402

NAME = "python.so"
PACKAGES = ("flux-core", "jansson")

CDEF = """
typedef struct flux_plugin flux_plugin_t;
typedef struct flux_plugin_arg flux_plugin_arg_t;
typedef struct flux_handle flux_t;
typedef struct flux_msg flux_msg_t;
typedef uint64_t flux_jobid_t;

const char *flux_plugin_get_path (flux_plugin_t *p);
const char *flux_plugin_get_conf (flux_plugin_t *p);
int flux_plugin_set_name (flux_plugin_t *p, const char *name);
int flux_plugin_remove_handler (flux_plugin_t *p, const char *topic);
void flux_plugin_arg_destroy (flux_plugin_arg_t *args);

flux_t *flux_jobtap_get_flux (flux_plugin_t *p);
int flux_jobtap_set_load_sort_order (flux_plugin_t *p, const char *mode);
int flux_jobtap_dependency_add (flux_plugin_t *p, flux_jobid_t id, const char *description);
int flux_jobtap_dependency_remove (flux_plugin_t *p, flux_jobid_t id, const char *description);
int flux_jobtap_reprioritize_job (flux_plugin_t *p, flux_jobid_t id, unsigned int priority);
int flux_jobtap_reprioritize_all (flux_plugin_t *p);
int flux_jobtap_job_aux_delete_value (flux_plugin_t *p, flux_jobid_t id, void *value);
int flux_jobtap_job_set_flag (flux_plugin_t *p, flux_jobid_t id, const char *flag);
flux_plugin_arg_t *flux_jobtap_job_lookup (flux_plugin_t *p, flux_jobid_t id);
int jobtap_result (flux_plugin_t *p, flux_jobid_t id);
int flux_jobtap_job_event_posted (flux_plugin_t *p, flux_jobid_t id, const char *name);
int flux_jobtap_job_subscribe (flux_plugin_t *p, flux_jobid_t id);
void flux_jobtap_job_unsubscribe (flux_plugin_t *p, flux_jobid_t id);
int flux_jobtap_prolog_start (flux_plugin_t *p, const char *description);
int flux_jobtap_prolog_finish (flux_plugin_t *p, flux_jobid_t id, const char *description, int status);
int flux_jobtap_epilog_start (flux_plugin_t *p, const char *description);
int flux_jobtap_epilog_finish (flux_plugin_t *p, flux_jobid_t id, const char *description, int status);
int flux_jobtap_call (flux_plugin_t *p, flux_jobid_t id, const char *topic, flux_plugin_arg_t *args);

int jobtap_add_handler (flux_plugin_t *p, const char *topic, long key);
int jobtap_error (flux_plugin_t *p, flux_plugin_arg_t *args, const char *text);
void jobtap_log (flux_t *h, int level, const char *text);
int jobtap_answer (flux_plugin_arg_t *args, const char *text);
int jobtap_answer_priority (flux_plugin_arg_t *args, int64_t priority);
int64_t jobtap_id (flux_plugin_arg_t *args);
int jobtap_event_post (flux_plugin_t *p, flux_jobid_t id, const char *name, const char *context);
int jobtap_jobspec_update (flux_plugin_t *p, int current, flux_jobid_t id, const char *updates);
int jobtap_raise_exception (flux_plugin_t *p, flux_jobid_t id, const char *type, int severity, const char *note);
int jobtap_job_aux_set (flux_plugin_t *p, flux_jobid_t id, const char *name, void *entry);
int jobtap_service_register (flux_plugin_t *p, const char *method, uint32_t rolemask, long number);
flux_plugin_arg_t *jobtap_args (flux_plugin_arg_t *others, const char *text);
"""

#: The Python functions that C calls.
EMBEDDING = """
extern "Python" int python_load (flux_plugin_t *p, long key);
extern "Python" int python_call (long key, const char *topic, flux_plugin_arg_t *args);
extern "Python" void python_unload (long key);
extern "Python" void python_free (void *entry);
extern "Python" void python_request (const flux_msg_t *msg, long number);
"""

START = """
import flux.jobtap.job_manager_bridge
"""


def flux_flags():
    """(compile flags, link flags) for flux-core and jansson, or None where pkg-config does not know
    them."""
    cflags, libs = os.environ.get("FLUX_CORE_CFLAGS"), os.environ.get("FLUX_CORE_LIBS")
    if not cflags and not libs:
        cflags = extension.pkg_config("--cflags", *PACKAGES)
        libs = extension.pkg_config("--libs", *PACKAGES)
        if cflags is None or libs is None:
            return None
    return shlex.split(cflags or ""), shlex.split(libs or "")


def shared_library():
    """(directory, link name, soname) of this Python's shared library, or None if it has none."""
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        return None
    soname = sysconfig.get_config_var("INSTSONAME")
    directory = sysconfig.get_config_var("LIBDIR")
    link = "python" + sysconfig.get_config_var("LDVERSION")
    if not soname or not any(
        os.path.exists(os.path.join(place, soname))
        for place in (directory, "/usr/lib", "/usr/lib64")
    ):
        multiarch = sysconfig.get_config_var("MULTIARCH") or ""
        directory = os.path.join("/usr/lib", multiarch)
        if not os.path.exists(os.path.join(directory, soname or "")):
            return None
    return directory, link, soname


def missing():
    """Check whether python.so can be built here: returns None, or a text about the missing
    dependency."""
    problem = extension.missing()
    if problem:
        return problem
    if shared_library() is None:
        return f"{sys.executable} has no shared library (build it with --enable-shared, or install libpython3)"
    for package in PACKAGES:
        if (
            not os.environ.get("FLUX_CORE_LIBS")
            and extension.pkg_config("--cflags", package) is None
        ):
            return f"pkg-config does not know {package}: install its development files, or add the directory of {package}.pc to PKG_CONFIG_PATH"
    cflags, _ = flux_flags()
    for header, package in (("jansson.h", "libjansson-dev"), ("flux/jobtap.h", "flux-core")):
        if not extension.compiles(f"#include <{header}>\n", cflags):
            return f"{header} cannot be compiled (package {package})"
    return None


def builder(args):
    """Make the cffi.FFI that builds python.so."""
    import cffi

    directory, link, soname = shared_library()
    cflags, libs = flux_flags()
    words = {
        "PYTHON_EXECUTABLE": sys.executable,
        "PYTHON_LIBRARY": soname,
        "BUILD_DIR": os.path.realpath(args.output_dir),
        "SOURCE_OVERLAY": os.path.abspath(args.overlay),
        "INSTALLED_OVERLAY": args.installed_overlay or os.path.abspath(args.overlay),
        "FLUX_BINDINGS": args.bindings or "",
    }
    defines = "".join(f'#define {name} "{value}"\n' for name, value in words.items())
    with open(os.path.join(HERE, "python.c"), encoding="utf-8") as file:
        source = defines + file.read()
    ffi = cffi.FFI()
    ffi.cdef(CDEF)
    ffi.embedding_api(EMBEDDING)
    ffi.embedding_init_code(START)
    ffi.set_source(
        "_flux_jobtap",
        source,
        extra_compile_args=cflags + ["-O2", "-fvisibility=default"],
        extra_link_args=[f"-L{directory}", f"-Wl,-rpath,{directory}", f"-l{link}", *libs]
        # The functions of the jobtap interface are defined in job-manager.so, which loads
        # python.so.
        + ["-Wl,--allow-shlib-undefined"],
        libraries=[],
    )
    return ffi


def main(argv=None):
    parser = extension.parser("Build the jobtap plugin python.so", HERE)
    source = os.path.join(os.path.dirname(HERE), "bindings", "python")
    parser.add_argument(
        "--overlay", metavar="DIR", default=source, help="the bindings of the source tree"
    )
    parser.add_argument("--installed-overlay", metavar="DIR", help="where they will be installed")
    parser.add_argument("--bindings", metavar="DIR", help="the bindings of flux-core")
    args = parser.parse_args(argv)

    def make():
        verbose = not args.quiet
        return extension.build(builder(args), args.output_dir, NAME, verbose, target="python.*")

    return extension.run(NAME, args, missing(), make)


if __name__ == "__main__":
    sys.exit(main())
