"""``_flux._hostlist``: the functions of libflux-hostlist that the bindings call."""

from _flux import hostlist  # noqa: F401
from _flux.ffi import FFI
from _flux.function import Library

lib = Library(FFI, {})
ffi = lib.get_ffi()
