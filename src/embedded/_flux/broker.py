"""Requests of a handle to its broker (attributes, the log, services), and messages of a module to it."""

import errno

from _flux.cdata import bytes_of
from _flux.function import failure, function, functions
from _flux.futures import ask, send, succeed
from flux_engine.kernel.defaults import DEBUG_FLAGS
from flux_engine.kernel.future import RPC_NORESPONSE


@function
def flux_attr_get(h, name):
    """const char *flux_attr_get (flux_t *h, const char *name)"""
    return ask(h, "attr.get", {"name": name})["value"]


functions(
    {
        "int flux_attr_set (flux_t *h, const char *name, const char *val)":
            lambda h, name, val: succeed(h, "attr.set", {"name": name, "value": val}),
        "flux_future_t *flux_service_register (flux_t *h, const char *name)":
            lambda h, name: send(h, "service.add", {"service": name}),
        "flux_future_t *flux_service_unregister (flux_t *h, const char *name)":
            lambda h, name: send(h, "service.remove", {"service": name}),
        "int flux_get_rank (flux_t *h, out uint32_t *value)": lambda h: int(flux_attr_get(h, "rank")),
        "int flux_get_size (flux_t *h, out uint32_t *value)": lambda h: int(flux_attr_get(h, "size")),
    }
)  # fmt: skip


@function
def flux_log(h, level, fmt):
    """int flux_log (flux_t *h, int level, const char *fmt, ...)"""
    # The only conversion without arguments.
    text = fmt.replace("%%", "%")
    body = {"level": level, "name": h.task.log_name, "text": text}
    send(h, "log.append", body, RPC_NORESPONSE).end()


# -- modules -----------------------------------------------------------------------------------------------


@function
def flux_module_set_running(h):
    """int flux_module_set_running (flux_t *h)"""
    set_running = getattr(h.task, "set_running", None)
    if set_running is not None:
        set_running()
    else:
        send(h, "module.status", {"status": 1}, RPC_NORESPONSE).end()


@function
def flux_module_debug_test(h, flag, clear):
    """bool flux_module_debug_test (flux_t *h, int flag, bool clear)"""
    word = h.task.aux.get(DEBUG_FLAGS, 0)
    if clear and word & flag:
        h.task.aux[DEBUG_FLAGS] = word & ~flag
    return bool(word & flag)


@function
def flux_aux_get(h, name):
    """void *flux_aux_get (flux_t *h, const char *name)"""
    found = h.task.aux.get(name)
    if found is not None:
        return found
    if name == "flux::name":
        return bytes_of(h.task.name)
    if name == "flux::uuid":
        return bytes_of(h.task.uuid)
    raise failure(errno.ENOENT)


@function
def flux_aux_set(h, name, aux, destroy):
    """int flux_aux_set (flux_t *h, opt const char *name, opt void *aux, flux_free_f destroy)"""
    if name is None and aux is None:
        raise failure(errno.EINVAL)
    h.task.aux[name] = aux


# -- the configuration that is built in --------------------------------------------------------------------


@function
def flux_conf_builtin_get(name, flag):
    """const char *flux_conf_builtin_get (const char *name, int flag)"""
    from flux_engine import paths

    if name not in paths.BUILTIN:
        raise failure(errno.EINVAL)
    return paths.BUILTIN[name]
