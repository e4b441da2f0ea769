"""Sets of ids (RFC 22), kept as intervals: what a set costs depends on its gaps, not on its members."""

import errno

from _flux.ffi import pointer_to
from _flux.function import failure, function
from flux_embedded.formats import idset as text_form

#: What there is no member of: given back where no id is found.
INVALID_ID = (1 << 32) - 2
#: The least id that no set can have.
LIMIT = 1 << 31
BRACKETS, RANGE = 2, 4


class Set:
    """A ``struct idset``.

    Attributes:
        bounds (list): intervals, as `flux_embedded.formats.idset` has them; a new list for each change
    """

    __slots__ = ("__weakref__", "bounds")

    def __init__(self, bounds):
        self.bounds = bounds


pointer_to("struct idset *", Set)


def _index(bounds, id):
    """How many bounds are at or below an id: odd if it is a member."""
    low, high = 0, len(bounds)
    while low < high:
        middle = (low + high) // 2
        if bounds[middle] <= id:
            low = middle + 1
        else:
            high = middle
    return low


@function("struct idset *idset_create (size_t size, int flags)")
def idset_create(size, flags):
    return Set([])


@function("void idset_destroy (struct idset *idset)", null="idset")
def idset_destroy(idset):
    pass


@function("struct idset *idset_decode (const char *s)")
def idset_decode(s):
    body = s[1:-1] if s[:1] == "[" and s[-1:] == "]" else s
    # The library of the host is no stickler for commas, but a range of one id is none.
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


@function("char *idset_encode (const struct idset *idset, int flags)")
def idset_encode(idset, flags):
    if flags & ~(BRACKETS | RANGE):
        raise failure(errno.EINVAL)
    return text_form.encode(idset.bounds, bool(flags & BRACKETS), bool(flags & RANGE)).encode()


@function("struct idset *idset_copy (const struct idset *idset)")
def idset_copy(idset):
    return Set(idset.bounds)


def _check(*ids):
    for id in ids:
        if id >= INVALID_ID:
            raise failure(errno.EINVAL)


@function("int idset_set (struct idset *idset, unsigned int id)")
def idset_set(idset, id):
    return idset_range_set(idset, id, id)


@function("int idset_range_set (struct idset *idset, unsigned int lo, unsigned int hi)")
def idset_range_set(idset, lo, hi):
    _check(lo, hi)
    lo, hi = min(lo, hi), max(lo, hi)
    if hi >= LIMIT:
        raise failure(errno.ERANGE)
    idset.bounds = text_form.union(idset.bounds, [lo, hi + 1])
    return 0


@function("int idset_clear (struct idset *idset, unsigned int id)")
def idset_clear(idset, id):
    return idset_range_clear(idset, id, id)


@function("int idset_range_clear (struct idset *idset, unsigned int lo, unsigned int hi)")
def idset_range_clear(idset, lo, hi):
    _check(lo, hi)
    lo, hi = min(lo, hi), max(lo, hi)
    idset.bounds = text_form.difference(idset.bounds, [lo, hi + 1])
    return 0


@function("bool idset_test (const struct idset *idset, unsigned int id)")
def idset_test(idset, id):
    return _index(idset.bounds, id) & 1 == 1


@function("unsigned int idset_first (const struct idset *idset)")
def idset_first(idset):
    return idset.bounds[0] if idset.bounds else INVALID_ID


@function("unsigned int idset_last (const struct idset *idset)")
def idset_last(idset):
    return idset.bounds[-1] - 1 if idset.bounds else INVALID_ID


@function("unsigned int idset_next (const struct idset *idset, unsigned int id)")
def idset_next(idset, id):
    bounds = idset.bounds
    id = (id + 1) & 0xFFFFFFFF
    at = _index(bounds, id)
    if at & 1:
        return id
    return bounds[at] if at < len(bounds) else INVALID_ID


@function("unsigned int idset_prev (const struct idset *idset, unsigned int id)")
def idset_prev(idset, id):
    bounds = idset.bounds
    at = _index(bounds, id - 1) if id else 0
    if at & 1:
        return id - 1
    return bounds[at - 1] - 1 if at else INVALID_ID


@function("size_t idset_count (const struct idset *idset)")
def idset_count(idset):
    return text_form.count(idset.bounds)


@function("bool idset_empty (const struct idset *idset)")
def idset_empty(idset):
    return not idset.bounds


@function("bool idset_equal (const struct idset *a, const struct idset *b)")
def idset_equal(a, b):
    return a.bounds == b.bounds


@function("bool idset_has_intersection (const struct idset *a, const struct idset *b)")
def idset_has_intersection(a, b):
    return bool(text_form.intersect(a.bounds, b.bounds))


@function("struct idset *idset_union (const struct idset *a, const struct idset *b)")
def idset_union(a, b):
    return Set(text_form.union(a.bounds, b.bounds))


@function("struct idset *idset_intersect (const struct idset *a, const struct idset *b)")
def idset_intersect(a, b):
    return Set(text_form.intersect(a.bounds, b.bounds))


@function("struct idset *idset_difference (const struct idset *a, const struct idset *b)")
def idset_difference(a, b):
    return Set(text_form.difference(a.bounds, b.bounds))


@function("int idset_add (struct idset *a, const struct idset *b)")
def idset_add(a, b):
    a.bounds = text_form.union(a.bounds, b.bounds)
    return 0


@function("int idset_subtract (struct idset *a, const struct idset *b)")
def idset_subtract(a, b):
    a.bounds = text_form.difference(a.bounds, b.bounds)
    return 0
