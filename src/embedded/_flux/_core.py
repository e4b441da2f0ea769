"""``_flux._core``: what the bindings call of libflux-core."""

from _flux import constants
from _flux.ffi import FFI
from _flux.function import Library, Wrapped, look_up

lib = Library(
    FFI,
    {
        "flux_kvs": "_flux.kvs",
        "flux_job": "_flux.job",
        "flux_unwrap": "_flux.job",
        "flux_future": "_flux.futures",
        "flux_rpc": "_flux.futures",
        "flux_msg_handler": "_flux.reactor",
        "flux_reactor": "_flux.reactor",
        "flux_watcher": "_flux.reactor",
        "flux_timer": "_flux.reactor",
        "flux_fd": "_flux.reactor",
        "flux_signal": "_flux.reactor",
        "flux_idle": "_flux.reactor",
        "flux_prepare": "_flux.reactor",
        "flux_check": "_flux.reactor",
        "flux_msg": "_flux.messages",
        "flux_request": "_flux.messages",
        "flux_response": "_flux.messages",
        "flux_event": "_flux.messages",
        "flux_respond": "_flux.messages",
        "flux_send": "_flux.messages",
        "flux_recv": "_flux.messages",
        "flux_attr": "_flux.broker",
        "flux_get_rank": "_flux.broker",
        "flux_get_size": "_flux.broker",
        "flux_get_instance": "_flux.broker",
        "flux_conf": "_flux.broker",
        "flux_module": "_flux.broker",
        "flux_service": "_flux.broker",
        "flux_log": "_flux.broker",
        "flux_aux": "_flux.broker",
        "flux_": "_flux.handle",
    },
    {name: value for name, value in vars(constants).items() if name.startswith("FLUX_")},
)
ffi = lib.get_ffi()

# Whoever asks for these has no handle yet, or needs none.
# The bindings find the functions by a wrapper that is made for each; see `function`.
import flux.wrapper  # noqa: E402
from _flux import debugger, handle  # noqa: E402, F401

Wrapped.base = flux.wrapper.WrapperBase
flux.wrapper.FunctionWrapper = Wrapped
flux.wrapper.Wrapper.__getattr__ = look_up
