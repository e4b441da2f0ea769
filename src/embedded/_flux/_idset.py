"""``_flux._idset``: the functions of libflux-idset that the bindings call.

Sets of ids (RFC 22) are kept as intervals: costs depend on the number of gaps, not of members.
"""

import errno
from bisect import bisect_right

from _flux.ffi import FFI, pointer_to
from _flux.function import Library, failure, function, functions, nothing
from flux_engine.formats import idset as text_form

#: Returned where no id is found; never a member.
INVALID_ID = (1 << 32) - 2
#: The smallest id that no set can have.
LIMIT = 1 << 31
BRACKETS, RANGE = 2, 4
FLAGS = {
    "IDSET_FLAG_AUTOGROW": 1,
    "IDSET_FLAG_BRACKETS": BRACKETS,
    "IDSET_FLAG_RANGE": RANGE,
    "IDSET_FLAG_INITFULL": 8,
    "IDSET_FLAG_COUNT_LAZY": 16,
    "IDSET_FLAG_ALLOC_RR": 32,
}


class Set:
    """A ``struct idset``: intervals, `bounds`, as `flux_engine.formats.idset` has them; a new list for each change."""

    __slots__ = ("__weakref__", "bounds")

    def __init__(self, bounds):
        self.bounds = bounds


pointer_to("struct idset *", Set)


@function
def idset_decode(s):
    """struct idset *idset_decode (const char *s)"""
    body = s[1:-1] if s[:1] == "[" and s[-1:] == "]" else s
    # flux-core's library accepts extra commas, but not a range of one id.
    parts = [part for part in body.split(",") if part]
    if any(low == high for low, _, high in (part.partition("-") for part in parts)):
        raise failure(errno.EINVAL)
    try:
        bounds = text_form.decode(",".join(parts))
    except ValueError:
        raise failure(errno.EINVAL) from None
    if bounds and bounds[-1] > LIMIT:
        raise failure(errno.EINVAL)
    return Set(bounds)


@function
def idset_encode(idset, flags):
    """char *idset_encode (const struct idset *idset, int flags)"""
    if flags & ~(BRACKETS | RANGE):
        raise failure(errno.EINVAL)
    return text_form.encode(idset.bounds, bool(flags & BRACKETS), bool(flags & RANGE))


def _range(one, other):
    """The bounds of a range of ids."""
    if max(one, other) >= INVALID_ID:
        raise failure(errno.EINVAL)
    return [min(one, other), max(one, other) + 1]


def _add(idset, one, other):
    bounds = _range(one, other)
    if bounds[1] > LIMIT:
        raise failure(errno.ERANGE)
    idset.bounds = text_form.union(idset.bounds, bounds)


def _clear(idset, one, other):
    idset.bounds = text_form.difference(idset.bounds, _range(one, other))


@function
def idset_next(idset, id):
    """unsigned int idset_next (const struct idset *idset, unsigned int id)"""
    bounds = idset.bounds
    id = (id + 1) & 0xFFFFFFFF
    at = bisect_right(bounds, id)  # odd if the id is a member
    if at & 1:
        return id
    return bounds[at] if at < len(bounds) else INVALID_ID


functions(
    {
        "struct idset *idset_create (size_t size, int flags)": lambda size, flags: Set([]),
        "struct idset *idset_copy (const struct idset *idset)": lambda idset: Set(idset.bounds),
        "int idset_set (struct idset *idset, unsigned int id)": lambda idset, id: _add(idset, id, id),
        "int idset_range_set (struct idset *idset, unsigned int lo, unsigned int hi)": _add,
        "int idset_clear (struct idset *idset, unsigned int id)": lambda idset, id: _clear(idset, id, id),
        "int idset_range_clear (struct idset *idset, unsigned int lo, unsigned int hi)": _clear,
        "bool idset_test (const struct idset *idset, unsigned int id)": lambda idset, id: bisect_right(idset.bounds, id) & 1 == 1,
        "unsigned int idset_first (const struct idset *idset)":
            lambda idset: idset.bounds[0] if idset.bounds else INVALID_ID,
        "unsigned int idset_last (const struct idset *idset)":
            lambda idset: idset.bounds[-1] - 1 if idset.bounds else INVALID_ID,
        "size_t idset_count (const struct idset *idset)": lambda idset: text_form.count(idset.bounds),
        "bool idset_empty (const struct idset *idset)": lambda idset: not idset.bounds,
        "bool idset_equal (const struct idset *a, const struct idset *b)": lambda a, b: a.bounds == b.bounds,
        "bool idset_has_intersection (const struct idset *a, const struct idset *b)":
            lambda a, b: bool(text_form.intersect(a.bounds, b.bounds)),
        "struct idset *idset_union (const struct idset *a, const struct idset *b)":
            lambda a, b: Set(text_form.union(a.bounds, b.bounds)),
        "struct idset *idset_intersect (const struct idset *a, const struct idset *b)":
            lambda a, b: Set(text_form.intersect(a.bounds, b.bounds)),
        "struct idset *idset_difference (const struct idset *a, const struct idset *b)":
            lambda a, b: Set(text_form.difference(a.bounds, b.bounds)),
        "int idset_add (struct idset *a, const struct idset *b)":
            lambda a, b: setattr(a, "bounds", text_form.union(a.bounds, b.bounds)),
        "int idset_subtract (struct idset *a, const struct idset *b)":
            lambda a, b: setattr(a, "bounds", text_form.difference(a.bounds, b.bounds)),
        "void idset_destroy (opt struct idset *idset)": nothing,
    }
)  # fmt: skip


lib = Library(FFI, {**FLAGS, "IDSET_INVALID_ID": INVALID_ID})
ffi = lib.get_ffi()
