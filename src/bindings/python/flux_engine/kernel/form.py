"""What a payload must look like."""

import errno
import os


class Real:
    """In a form: a number that is written with a point or an exponent, and nothing else."""


#: What a value of a form is called in an error text.
_NAMES = {
    int: "an integer",
    float: "a number",
    Real: "a real number",
    str: "a string",
    bool: "true or false",
    list: "an array",
    dict: "an object",
}


class Malformed(OSError):
    """A payload that is not what its method takes.

    The sender is told ``Protocol error`` and no more, as by a real service; what is wrong stands in the
    log at debug level.
    """

    def __init__(self, detail):
        super().__init__(errno.EPROTO, os.strerror(errno.EPROTO))
        self.detail = detail


def check_form(body, form, topic):
    """Check a payload at the door.

    Args:
        body: the payload, None for none, which is no object either
        form (dict): key -> type or tuple of types; a key that ends with ``?`` may be missing.
            float also takes an int (`Real` does not), int does not take a bool; ``object`` is any value
        topic (str): for the text

    Raises:
        Malformed: what is wrong
    """
    if type(body) is not dict:
        raise Malformed(f"{topic}: the payload must be an object")
    for key, kinds in form.items():
        name = key.rstrip("?")
        if name not in body:
            if name == key:
                raise Malformed(f"{topic}: {name!r} is missing")
            continue
        if kinds is object:
            continue
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        kind = type(body[name])
        if kind is float and Real in kinds:
            continue
        if kind not in kinds and not (kind is int and float in kinds):
            wanted = " or ".join(_NAMES.get(one, "null") for one in kinds)
            raise Malformed(f"{topic}: {name!r} must be {wanted}")
