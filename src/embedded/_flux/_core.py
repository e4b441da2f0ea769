"""``_flux._core``: the functions of libflux-core that the bindings call."""

import flux.wrapper
from _flux import broker, constants, futures, handle, job, kvs, messages, reactor  # noqa: F401
from _flux.ffi import FFI
from _flux.function import Library, Wrapped, look_up

lib = Library(
    FFI, {name: value for name, value in vars(constants).items() if name.startswith("FLUX_")}
)
ffi = lib.get_ffi()

# The bindings look up the functions through wrappers; see `function`.
Wrapped.base = flux.wrapper.WrapperBase
flux.wrapper.FunctionWrapper = Wrapped
flux.wrapper.Wrapper.__getattr__ = look_up
