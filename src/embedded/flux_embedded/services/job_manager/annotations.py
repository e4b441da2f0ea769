"""Merging of job annotations (RFC 27)."""


def merge(old, new):
    """Return `old` with `new` merged in; neither argument is changed.

    A null removes a key, objects are merged key by key, everything else replaces what was there.
    Nulls are never stored, and an object that a removal leaves empty goes too.
    """
    merged = dict(old)
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            before = merged.get(key)
            inner = merge(before if isinstance(before, dict) else {}, value)
            # An empty object that was sent on purpose is kept; one emptied by nulls is not.
            if inner or not value:
                merged[key] = inner
            else:
                merged.pop(key, None)
        else:
            merged[key] = value
    return merged
