# SPDX-License-Identifier: LGPL-3.0-or-later
"""The form of external input: payloads of requests, tables of a configuration.

A form is a type or a tuple of types (float also takes an int, int does not take a bool); ``object`` for any value; a list with
one form, for an array of such; a dict of key -> form, where a key that ends with ``?`` may be missing and others may be there, or
`Table`, which has no others; or a function that raises ValueError or TypeError.
"""

import errno

#: Names of forms in error texts.
NAMES = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    list: "an array",
    dict: "an object",
}


class Table(dict):
    """The form of an object that may have no other keys."""


def check(value, form, where):
    """Check the form of a value. ValueError: how it does not have it, with `where`, the name of the value."""
    kind = type(form)
    if kind is type or kind is tuple:
        _check_type(value, form, where)
    elif kind is dict or kind is Table:
        _check_object(value, form, where)
    elif kind is list:
        if type(value) is not list:
            raise ValueError(f"{where} must be an array")
        for i, item in enumerate(value):
            check(item, form[0], f"{where}[{i}]")
    else:
        try:
            form(value)
        except (TypeError, ValueError) as exc:
            raise ValueError(f"{where}: {exc}") from None


def _check_type(value, kinds, where):
    if kinds is object:
        return
    kinds = kinds if type(kinds) is tuple else (kinds,)
    kind = type(value)
    if kind not in kinds and not (kind is int and float in kinds):
        wanted = " or ".join(NAMES.get(one, "null") for one in kinds)
        raise ValueError(f"{where} must be {wanted}")


def _check_object(value, form, where):
    if type(value) is not dict:
        raise ValueError(f"{where} must be an object")
    for key, part in form.items():
        name = key.rstrip("?")
        if name in value:
            check(value[name], part, f"{where}.{name}")
        elif name == key:
            raise ValueError(f"{where}.{name} is missing")
    if type(form) is Table:
        for key in value:
            if key not in form and f"{key}?" not in form:
                raise ValueError(f"{where}: unknown key {quote(key)}")


def check_table(table, form, where):
    """Check a table of the configuration, None for an empty one; returns it. OSError EINVAL: the error in the table."""
    table = {} if table is None else table
    try:
        check(table, form, where)
    except ValueError as exc:
        raise OSError(errno.EINVAL, f"configuration: {exc}") from None
    return table


def quote(value, limit=60):
    """Return a value's repr, cut to `limit` characters so that an error message stays one line."""
    if isinstance(value, str) and len(value) > limit:
        value = value[:limit] + "..."
    text = repr(value)
    return text if len(text) <= 2 * limit else text[: 2 * limit - 3] + "..."
