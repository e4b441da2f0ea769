"""What a handle asks its broker: attributes, the log, services; and what a module tells it."""

import errno

from _flux.cdata import bytes_of
from _flux.function import failure, function
from _flux.futures import RPCFuture, ask, send
from flux_embedded.kernel.future import RPC_NORESPONSE

#: Where a task keeps its debug word, in ``Task.aux``: what ``module debug`` changes.
DEBUG_FLAGS = "debug_flags"


@function("const char *flux_attr_get (flux_t *h, const char *name)")
def flux_attr_get(h, name):
    return bytes_of(_attr(h, name))


def _attr(h, name):
    return ask(h, "attr.get", {"name": name})["value"]


@function("int flux_attr_set (flux_t *h, const char *name, const char *val)")
def flux_attr_set(h, name, val):
    ask(h, "attr.set", {"name": name, "value": val})
    return 0


@function("int flux_get_rank (flux_t *h, uint32_t *rank)")
def flux_get_rank(h, rank):
    rank[0] = int(_attr(h, "rank"))
    return 0


@function("int flux_get_size (flux_t *h, uint32_t *size)")
def flux_get_size(h, size):
    size[0] = int(_attr(h, "size"))
    return 0


@function("int flux_get_instance_starttime (flux_t *h, double *starttime)", null="starttime")
def flux_get_instance_starttime(h, starttime):
    value = float(_attr(h, "broker.starttime"))
    if starttime is not None:
        starttime[0] = value
    return 0


@function("int flux_log (flux_t *h, int level, const char *fmt, ...)")
def flux_log(h, level, fmt):
    # The one format without arguments that means something.
    text = fmt.replace("%%", "%")
    body = {"level": level, "name": h.task.log_name, "text": text}
    h.send_request(RPCFuture(), "log.append", None, body, flags=RPC_NORESPONSE).end()
    return 0


@function("flux_future_t *flux_service_register (flux_t *h, const char *name)")
def flux_service_register(h, name):
    return send(h, "service.add", {"service": name})


@function("flux_future_t *flux_service_unregister (flux_t *h, const char *name)")
def flux_service_unregister(h, name):
    return send(h, "service.remove", {"service": name})


# -- modules -----------------------------------------------------------------------------------------------


@function("int flux_module_set_running (flux_t *h)")
def flux_module_set_running(h):
    set_running = getattr(h.task, "set_running", None)
    if set_running is not None:
        set_running()
    else:
        flux_module_status(h)
    return 0


def flux_module_status(h):
    h.send_request(RPCFuture(), "module.status", None, {"status": 1}, flags=RPC_NORESPONSE).end()


@function("bool flux_module_debug_test (flux_t *h, int flag, bool clear)")
def flux_module_debug_test(h, flag, clear):
    word = h.task.aux.get(DEBUG_FLAGS, 0)
    if clear and word & flag:
        h.task.aux[DEBUG_FLAGS] = word & ~flag
    return bool(word & flag)


@function("void *flux_aux_get (flux_t *h, const char *name)")
def flux_aux_get(h, name):
    found = h.task.aux.get(name)
    if found is not None:
        return found
    if name == "flux::name":
        return bytes_of(h.task.name)
    if name == "flux::uuid":
        return bytes_of(h.task.uuid)
    raise failure(errno.ENOENT)


@function(
    "int flux_aux_set (flux_t *h, const char *name, void *aux, flux_free_f destroy)",
    null="name aux",
)
def flux_aux_set(h, name, aux, destroy):
    if name is None and aux is None:
        raise failure(errno.EINVAL)
    h.task.aux[name] = aux
    return 0


# -- the configuration that is built in --------------------------------------------------------------------


@function("const char *flux_conf_builtin_get (const char *name, int flag)")
def flux_conf_builtin_get(name, flag):
    from flux_embedded import paths

    if name not in paths.BUILTIN:
        raise failure(errno.EINVAL)
    return bytes_of(paths.BUILTIN[name])
