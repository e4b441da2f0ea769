"""``_flux._idset``: the functions of libflux-idset that the bindings call."""

from _flux import idset  # noqa: F401
from _flux.ffi import FFI
from _flux.function import Library

lib = Library(
    FFI,
    {
        "IDSET_FLAG_AUTOGROW": 1,
        "IDSET_FLAG_BRACKETS": 2,
        "IDSET_FLAG_RANGE": 4,
        "IDSET_FLAG_INITFULL": 8,
        "IDSET_FLAG_COUNT_LAZY": 16,
        "IDSET_FLAG_ALLOC_RR": 32,
        "IDSET_INVALID_ID": (1 << 32) - 2,
    },
)
ffi = lib.get_ffi()
