"""``_flux._hostlist``: what the bindings call of libflux-hostlist."""

from _flux.ffi import FFI
from _flux.function import Library

lib = Library(FFI, {"hostlist_": "_flux.hostlist"}, {})
ffi = lib.get_ffi()
