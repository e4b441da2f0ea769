/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* The part of python.so that has to be written in C: starting Python inside the job manager, calling the variadic functions
 * of the jobtap API, and converting JSON values to Python objects without printing and parsing them.
 *
 * Everything else is in flux.jobtap.job_manager_bridge.  build.py combines the two with cffi and defines
 *   PYTHON_EXECUTABLE  the interpreter whose site-packages are used
 *   PYTHON_LIBRARY     soname of its shared library
 *   BUILD_DIR          where python.so is built; if it is loaded from there, Python modules come from the source tree
 *   SOURCE_OVERLAY, INSTALLED_OVERLAY, FLUX_BINDINGS   directories that precede all others on sys.path
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <flux/core.h>
#include <flux/jobtap.h>
#include <jansson.h>

static int python_load (flux_plugin_t *p, long key);
static int python_call (long key, const char *topic, flux_plugin_arg_t *args);
static void python_unload (long key);
static void python_free (void *entry);
static void python_request (const flux_msg_t *msg, long number);

/*
 * JSON to Python
 */

int flux_plugin_init (flux_plugin_t *p);

/* FrozenDict and FrozenList, set by set_types. */
static PyTypeObject *dict_type;
static PyTypeObject *list_type;
static PyObject *no_arguments;

/* Jobspecs are large, and the same one is read in many callbacks, so converted ones are cached by the address of their
 * json_t.  The cache keeps a reference to the json_t, so that no other can get the same address.  The job manager changes a
 * jobspec in place when a jobspec-update event is posted; forget_jobspecs is called before the changed one can be read.
 */
#define CACHE_SIZE 256
static struct {
    json_t *json;
    PyObject *made;
} cache[CACHE_SIZE];

static PyObject *to_python (json_t *o)
{
    switch (json_typeof (o)) {
    case JSON_OBJECT: {
        const char *key;
        json_t *value;
        PyObject *dict = dict_type->tp_new (dict_type, no_arguments, NULL);
        if (!dict)
            return NULL;
        json_object_foreach (o, key, value) {
            PyObject *name = PyUnicode_FromString (key);
            PyObject *made = name ? to_python (value) : NULL;
            int rc = made ? PyDict_SetItem (dict, name, made) : -1;
            Py_XDECREF (name);
            Py_XDECREF (made);
            if (rc < 0) {
                Py_DECREF (dict);
                return NULL;
            }
        }
        return dict;
    }
    case JSON_ARRAY: {
        size_t index;
        json_t *value;
        PyObject *list = list_type->tp_new (list_type, no_arguments, NULL);
        if (!list)
            return NULL;
        json_array_foreach (o, index, value) {
            PyObject *made = to_python (value);
            int rc = made ? PyList_Append (list, made) : -1;
            Py_XDECREF (made);
            if (rc < 0) {
                Py_DECREF (list);
                return NULL;
            }
        }
        return list;
    }
    case JSON_STRING:
        return PyUnicode_DecodeUTF8 (json_string_value (o), json_string_length (o), "surrogateescape");
    case JSON_INTEGER:
        return PyLong_FromLongLong (json_integer_value (o));
    case JSON_REAL:
        return PyFloat_FromDouble (json_real_value (o));
    case JSON_TRUE:
        Py_RETURN_TRUE;
    case JSON_FALSE:
        Py_RETURN_FALSE;
    default:
        Py_RETURN_NONE;
    }
}

static PyObject *cached_to_python (json_t *o)
{
    size_t slot = ((uintptr_t)o >> 4) % CACHE_SIZE;
    PyObject *made;

    if (cache[slot].json == o) {
        Py_INCREF (cache[slot].made);
        return cache[slot].made;
    }
    if (!(made = to_python (o)))
        return NULL;
    if (cache[slot].json) {
        json_decref (cache[slot].json);
        Py_DECREF (cache[slot].made);
    }
    cache[slot].json = json_incref (o);
    cache[slot].made = made;
    Py_INCREF (made);
    return made;
}

static void forget_jobspecs (void)
{
    for (int i = 0; i < CACHE_SIZE; i++) {
        if (cache[i].json) {
            json_decref (cache[i].json);
            Py_DECREF (cache[i].made);
            cache[i].json = NULL;
            cache[i].made = NULL;
        }
    }
}

static json_t *args_root (PyObject *pointer, int flags)
{
    flux_plugin_arg_t *args = PyLong_AsVoidPtr (pointer);
    json_t *root;

    if (!args) {
        if (!PyErr_Occurred ())
            PyErr_SetString (PyExc_ValueError, "no args");
        return NULL;
    }
    /* This fails if there are no arguments at all. */
    if (flux_plugin_arg_unpack (args, flags, "o", &root) < 0)
        return NULL;
    return root;
}

/* fetch(pointer, key): get one value of the IN args. */
static PyObject *py_fetch (PyObject *module, PyObject *const *argv, Py_ssize_t argc)
{
    const char *key;
    json_t *root, *value;

    if (argc != 2) {
        PyErr_SetString (PyExc_TypeError, "fetch: expected pointer and key");
        return NULL;
    }
    if (PyUnicode_Check (argv[1]) && (key = PyUnicode_AsUTF8 (argv[1]))) {
        if ((root = args_root (argv[0], FLUX_PLUGIN_ARG_IN)) && (value = json_object_get (root, key)))
            return strcmp (key, "jobspec") == 0 ? cached_to_python (value) : to_python (value);
    }
    if (!PyErr_Occurred ())
        PyErr_SetObject (PyExc_KeyError, argv[1]);
    return NULL;
}

/* everything(pointer, flags): get all IN (0) or OUT (1) args as one dict. */
static PyObject *py_everything (PyObject *module, PyObject *const *argv, Py_ssize_t argc)
{
    json_t *root;

    if (argc != 2) {
        PyErr_SetString (PyExc_TypeError, "everything: expected pointer and flags");
        return NULL;
    }
    root = args_root (argv[0], PyLong_AsLong (argv[1]) ? FLUX_PLUGIN_ARG_OUT : FLUX_PLUGIN_ARG_IN);
    if (root)
        return to_python (root);
    if (PyErr_Occurred ())
        return NULL;
    return PyDict_New ();
}

/* keys(pointer): get the keys of the IN args. */
static PyObject *py_keys (PyObject *module, PyObject *const *argv, Py_ssize_t argc)
{
    const char *key;
    json_t *root, *value;
    PyObject *list;

    if (argc != 1) {
        PyErr_SetString (PyExc_TypeError, "keys: expected a pointer");
        return NULL;
    }
    if (!(root = args_root (argv[0], FLUX_PLUGIN_ARG_IN)) && PyErr_Occurred ())
        return NULL;
    if (!(list = PyList_New (0)))
        return NULL;
    json_object_foreach (root, key, value) {
        PyObject *name = PyUnicode_FromString (key);
        int rc = name ? PyList_Append (list, name) : -1;
        Py_XDECREF (name);
        if (rc < 0) {
            Py_DECREF (list);
            return NULL;
        }
    }
    return list;
}

/* set_types(dict, list): set the classes that JSON objects and arrays are converted to. */
static PyObject *py_set_types (PyObject *module, PyObject *const *argv, Py_ssize_t argc)
{
    if (argc != 2 || !PyType_Check (argv[0]) || !PyType_Check (argv[1])) {
        PyErr_SetString (PyExc_TypeError, "set_types: expected two classes");
        return NULL;
    }
    Py_INCREF (argv[0]);
    Py_INCREF (argv[1]);
    dict_type = (PyTypeObject *)argv[0];
    list_type = (PyTypeObject *)argv[1];
    Py_RETURN_NONE;
}

/* forget_jobspecs(): clear the cache, since a jobspec was changed in place. */
static PyObject *py_forget_jobspecs (PyObject *module, PyObject *const *argv, Py_ssize_t argc)
{
    forget_jobspecs ();
    Py_RETURN_NONE;
}

static PyMethodDef values_methods[] = {
    { "fetch", (PyCFunction)(void (*) (void))py_fetch, METH_FASTCALL, "fetch(pointer, key)" },
    { "keys", (PyCFunction)(void (*) (void))py_keys, METH_FASTCALL, "keys(pointer)" },
    { "everything", (PyCFunction)(void (*) (void))py_everything, METH_FASTCALL, "everything(pointer, flags)" },
    { "set_types", (PyCFunction)(void (*) (void))py_set_types, METH_FASTCALL, "set_types(dict, list)" },
    { "forget_jobspecs", (PyCFunction)(void (*) (void))py_forget_jobspecs, METH_FASTCALL, "forget_jobspecs()" },
    { NULL, NULL, 0, NULL },
};

static struct PyModuleDef values_module = {
    PyModuleDef_HEAD_INIT, "_flux_jobtap_values", "JSON of jobtap args as Python objects.", -1, values_methods,
};

/*
 * Starting Python
 */

static const char *overlay = INSTALLED_OVERLAY;

/* If the file was copied instead of linked, the job manager loads this code twice, as two libraries.  There is only one
 * Python interpreter in the process, so the library that was loaded first does the work for the second.
 */
typedef int (*init_f) (flux_plugin_t *p);
static init_f first;

/* Flux closes the library when a plugin is removed, but Python and the reactor still refer to its code. */
static int pin (char *text, size_t size)
{
    Dl_info info;
    char path[PATH_MAX];

    if (!dladdr ((void *)pin, &info) || !dlopen (info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE)) {
        snprintf (text, size, "python.so cannot be kept loaded: %s", dlerror ());
        return -1;
    }
    if (realpath (info.dli_fname, path) && strncmp (path, BUILD_DIR "/", strlen (BUILD_DIR) + 1) == 0)
        overlay = SOURCE_OVERLAY;
    return 0;
}

static int prepend_path (const char *directory)
{
    PyObject *path = PySys_GetObject ("path");
    PyObject *entry = PyUnicode_DecodeFSDefault (directory);
    int rc = path && entry ? PyList_Insert (path, 0, entry) : -1;
    Py_XDECREF (entry);
    return rc;
}

static int start_python (char *text, size_t size)
{
    PyConfig config;
    PyStatus status;
    PyObject *module, *modules;

    /* The job manager loads plugins with RTLD_LOCAL, but Python's extension modules expect its symbols to be global. */
    if (!dlopen (PYTHON_LIBRARY, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL)) {
        snprintf (text, size, "%s: %s", PYTHON_LIBRARY, dlerror ());
        return -1;
    }
    if (!Py_IsInitialized ()) {
        PyConfig_InitPythonConfig (&config);
        config.install_signal_handlers = 0;
        config.use_environment = 0;
        config.parse_argv = 0;
        config.user_site_directory = 0;
        status = PyConfig_SetBytesString (&config, &config.executable, PYTHON_EXECUTABLE);
        if (!PyStatus_Exception (status))
            status = PyConfig_SetBytesString (&config, &config.program_name, PYTHON_EXECUTABLE);
        if (!PyStatus_Exception (status))
            status = Py_InitializeFromConfig (&config);
        PyConfig_Clear (&config);
        if (PyStatus_Exception (status)) {
            snprintf (text, size, "Python does not start: %s", status.err_msg ? status.err_msg : "no reason given");
            return -1;
        }
        PyEval_SaveThread ();
    }
    PyGILState_STATE gil = PyGILState_Ensure ();
    int rc = -1;
    PyObject *other = PyDict_GetItemString (PyImport_GetModuleDict (), values_module.m_name);
    PyObject *address = other ? PyObject_GetAttrString (other, "init") : NULL;
    if (address && (first = PyLong_AsVoidPtr (address)))
        rc = 0;
    else if ((!*FLUX_BINDINGS || prepend_path (FLUX_BINDINGS) == 0) && prepend_path (overlay) == 0
        && (no_arguments = PyTuple_New (0)) && (module = PyModule_Create (&values_module))
        && PyModule_AddObject (module, "init", PyLong_FromVoidPtr ((void *)flux_plugin_init)) == 0
        && (modules = PyImport_GetModuleDict ()))
        rc = PyDict_SetItemString (modules, values_module.m_name, module);
    if (rc < 0) {
        PyErr_Clear ();
        snprintf (text, size, "Python does not start: sys.path cannot be set");
    }
    Py_XDECREF (address);
    PyGILState_Release (gil);
    return rc;
}

/*
 * The plugin
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long last_key;

static int dispatch (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args, void *arg)
{
    return python_call ((long)(intptr_t)arg, topic, args);
}

static void unload (void *arg)
{
    python_unload ((long)(intptr_t)arg);
}

/* The job manager does not show the user why flux_plugin_init failed.  So the plugin is loaded in any case, and refuses its
 * configuration with the reason as text, which fails the load.
 */
static int refuse (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args, void *arg)
{
    return flux_jobtap_error (p, args, "%s", (const char *)arg);
}

static int refuse_with (flux_plugin_t *p, const char *text)
{
    char *copy = strdup (text);
    if (!copy || flux_plugin_aux_set (p, "python::refusal", copy, free) < 0) {
        free (copy);
        return -1;
    }
    return flux_plugin_add_handler (p, "conf.update", refuse, copy);
}

int flux_plugin_init (flux_plugin_t *p)
{
    static bool started;
    char text[512] = "";
    long key;

    pthread_mutex_lock (&lock);
    if (!started)
        started = pin (text, sizeof (text)) == 0 && start_python (text, sizeof (text)) == 0;
    key = ++last_key;
    pthread_mutex_unlock (&lock);

    if (*text)
        return refuse_with (p, text);
    if (first)
        return first (p);
    if (flux_plugin_add_handler (p, "conf.update", dispatch, (void *)(intptr_t)key) < 0)
        return -1;
    /* If flux.jobtap.job_manager_bridge cannot be imported, cffi returns 0 and prints the reason. */
    if (python_load (p, key) == 0) {
        flux_plugin_remove_handler (p, "conf.update");
        return refuse_with (p, "flux.jobtap cannot be imported: the reason is in the stderr of the broker");
    }
    return flux_plugin_aux_set (p, "python::plugin", (void *)(intptr_t)key, unload);
}

static int jobtap_add_handler (flux_plugin_t *p, const char *topic, long key)
{
    return flux_plugin_add_handler (p, topic, dispatch, (void *)(intptr_t)key);
}

/*
 * Functions of the jobtap API that are variadic, or take callbacks
 */

static int jobtap_error (flux_plugin_t *p, flux_plugin_arg_t *args, const char *text)
{
    return flux_jobtap_error (p, args, "%s", text);
}

static void jobtap_log (flux_t *h, int level, const char *text)
{
    flux_log (h, level, "%s", text);
}

/* Set the OUT args to a JSON object, given as text. */
static int jobtap_answer (flux_plugin_arg_t *args, const char *text)
{
    return flux_plugin_arg_set (args, FLUX_PLUGIN_ARG_OUT, text);
}

static int jobtap_answer_priority (flux_plugin_arg_t *args, int64_t priority)
{
    return flux_plugin_arg_pack (args, FLUX_PLUGIN_ARG_OUT, "{s:I}", "priority", (json_int_t)priority);
}

static int64_t jobtap_id (flux_plugin_arg_t *args)
{
    json_int_t id;
    if (flux_plugin_arg_unpack (args, FLUX_PLUGIN_ARG_IN, "{s:I}", "id", &id) < 0)
        return -1;
    return id;
}

static int jobtap_event_post (flux_plugin_t *p, flux_jobid_t id, const char *name, const char *context)
{
    json_t *o = NULL;
    int rc, saved;

    if (!context)
        return flux_jobtap_event_post_pack (p, id, name, NULL);
    if (!(o = json_loads (context, 0, NULL))) {
        errno = EINVAL;
        return -1;
    }
    rc = flux_jobtap_event_post_pack (p, id, name, "O", o);
    saved = errno;
    json_decref (o);
    errno = saved;
    return rc;
}

static int jobtap_result (flux_plugin_t *p, flux_jobid_t id)
{
    flux_job_result_t result;
    return flux_jobtap_get_job_result (p, id, &result) < 0 ? -1 : (int)result;
}

/* Update the jobspec of the current job if `current` is set, else that of `id`. */
static int jobtap_jobspec_update (flux_plugin_t *p, int current, flux_jobid_t id, const char *updates)
{
    json_t *o;
    int rc, saved;

    if (!(o = json_loads (updates, 0, NULL))) {
        errno = EINVAL;
        return -1;
    }
    rc = current ? flux_jobtap_jobspec_update_pack (p, "O", o) : flux_jobtap_jobspec_update_id_pack (p, id, "O", o);
    saved = errno;
    json_decref (o);
    errno = saved;
    return rc;
}

static int jobtap_raise_exception (flux_plugin_t *p, flux_jobid_t id, const char *type, int severity, const char *note)
{
    return flux_jobtap_raise_exception (p, id, type, severity, "%s", note);
}

static int jobtap_job_aux_set (flux_plugin_t *p, flux_jobid_t id, const char *name, void *entry)
{
    return flux_jobtap_job_aux_set (p, id, name, entry, python_free);
}

static void request_cb (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    python_request (msg, (long)(intptr_t)arg);
}

static int jobtap_service_register (flux_plugin_t *p, const char *method, uint32_t rolemask, long number)
{
    return flux_jobtap_service_register_ex (p, method, rolemask, request_cb, (void *)(intptr_t)number);
}

/* Make the arguments for flux_jobtap_call: the IN args of `others`, or a JSON object given as text. */
static flux_plugin_arg_t *jobtap_args (flux_plugin_arg_t *others, const char *text)
{
    flux_plugin_arg_t *args;
    json_t *root;

    if (!(args = flux_plugin_arg_create ()))
        return NULL;
    if (flux_plugin_arg_set (args, FLUX_PLUGIN_ARG_OUT, "{}") < 0
        || (text && flux_plugin_arg_set (args, FLUX_PLUGIN_ARG_IN, text) < 0)
        || (others
            && (flux_plugin_arg_unpack (others, FLUX_PLUGIN_ARG_IN, "o", &root) < 0
                || flux_plugin_arg_pack (args, FLUX_PLUGIN_ARG_IN, "O", root) < 0))) {
        flux_plugin_arg_destroy (args);
        return NULL;
    }
    return args;
}
