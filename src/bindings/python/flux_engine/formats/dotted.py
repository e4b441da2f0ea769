# SPDX-License-Identifier: LGPL-3.0-or-later
"""Values in nested objects by a path of keys, ``attributes.system.duration``."""


def update_path(obj, path, value):
    """`obj` with `value` at the dotted `path`; objects on the way are copied, missing ones made."""
    key, dot, rest = path.partition(".")
    copy = dict(obj)
    if dot:
        inner = copy.get(key)
        copy[key] = update_path(inner if isinstance(inner, dict) else {}, rest, value)
    else:
        copy[key] = value
    return copy


def update_paths(obj, updates):
    """`obj` with the value of each dotted path in `updates`, such as the context of a jobspec-update."""
    for path, value in updates.items():
        obj = update_path(obj, path, value)
    return obj


def lookup_path(obj, path, default=None):
    """Value at the dotted `path`, or `default`."""
    for key in path.split("."):
        if not isinstance(obj, dict) or key not in obj:
            return default
        obj = obj[key]
    return obj
