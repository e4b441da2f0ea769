"""``_flux._idset``: the functions of libflux-idset that the bindings call."""

from _flux import idset
from _flux.ffi import FFI
from _flux.function import Library

lib = Library(FFI, {**idset.FLAGS, "IDSET_INVALID_ID": idset.INVALID_ID})
ffi = lib.get_ffi()
