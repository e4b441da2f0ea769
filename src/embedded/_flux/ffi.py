"""``ffi``: types, arrays, NULL, and the Python functions that C calls back."""

import threading

from _flux import cdata
from _flux.cdata import NULL, Array, Error, Handle, Match, Text
from _flux.ctype import INTEGERS, CType, integer_converter, named

#: class -> CType of pointers to its objects; see `pointer_to`.
_POINTERS = {}


def pointer_to(cname, *classes):
    """Map objects of these classes to the C type ``cname``; returns the CType."""
    ctype = named(cname)
    for cls in classes:
        _POINTERS[cls] = ctype
    return ctype


def class_of(ctype):
    """The classes whose objects are pointers of a type; an empty tuple if there are none."""
    return tuple(cls for cls, known in _POINTERS.items() if known is ctype)


class FFI:
    """An FFI object of cffi; functions decorated with `def_extern` become attributes of `library`."""

    NULL = NULL

    def __init__(self, library):
        self._library = library
        self._thread = threading.local()

    @property
    def errno(self):
        return getattr(self._thread, "errno", 0)

    @errno.setter
    def errno(self, number):
        self._thread.errno = number

    def typeof(self, what):
        """The CType of a name, a function or a pointer; TypeError for anything else."""
        if isinstance(what, str):
            return named(what)
        ctype = _POINTERS.get(type(what))
        if ctype is None:
            for cls in type(what).__mro__:
                if cls in _POINTERS:
                    ctype = _POINTERS[type(what)] = _POINTERS[cls]
                    return ctype
            ctype = getattr(what, "ctype", None)
            if not isinstance(ctype, CType):
                raise TypeError(f"expected a ctype or a cdata object, got {type(what).__name__!r}")
        return ctype

    def new(self, cname, value=None):
        """An array or a struct of the type `cname`; `value`: of ``char[]`` its bytes or its size, of a match a dict."""
        maker = _MAKERS.get(cname)
        if maker is None:
            maker = _MAKERS[cname] = _maker(named(cname))
        return maker(value)

    def cast(self, cname, value):
        """The same pointer, as another type."""
        return value

    def string(self, value, maxlen=-1):
        """The bytes of a ``char *`` up to its zero; RuntimeError for NULL, TypeError if it is not text."""
        if value.__class__ is Text:
            value = value.value
        elif value is NULL:
            raise RuntimeError("cannot use string() on <cdata 'char *' NULL>")
        if value.__class__ is not bytes:
            raise TypeError(f"string(): unexpected cdata type {type(value).__name__!r}")
        if b"\0" in value:
            value = value.partition(b"\0")[0]
        return value if maxlen < 0 else value[:maxlen]

    def new_handle(self, value):
        """A ``void *`` that stands for an object."""
        return Handle(value)

    def from_handle(self, handle):
        return handle.object

    def def_extern(self, name=None):
        """Decorator: C calls this function by this name."""

        def mark(function):
            self._library.define(name or function.__name__, function)
            return function

        return mark


def _maker(ctype):
    """A function from an initial value to the result of ``ffi.new``."""
    if ctype.kind == "array" and ctype.item.cname == "char":
        return _new_text
    if ctype.kind == "pointer" and ctype.item.cname == "struct flux_match":
        return lambda value: Array(named("struct flux_match[1]"), [_new_match(value or {})])
    if ctype.kind not in ("array", "pointer"):
        raise TypeError(f"expected a pointer or array ctype, got {ctype.cname!r}")
    whole = ctype if ctype.kind == "array" else named(f"{ctype.item.cname}[1]")
    if whole.length is None:
        return lambda value: Array(whole, value or ())
    if ctype.item.cname == "flux_error_t":
        return lambda value: Array(whole, [Error() for _ in range(whole.length)])
    empty = (_EMPTY.get(ctype.item.cname, 0) if ctype.item.kind == "primitive" else NULL,)
    items = empty * whole.length
    return lambda value: Array(whole, items if value is None else value)


_EMPTY = {"double": 0.0, "float": 0.0, "bool": False}
_MAKERS = {}


def _new_text(value):
    if isinstance(value, bytes):
        return Text(value, len(value) + 1)
    if isinstance(value, int):
        return Text(b"", value)
    raise TypeError(
        f"initializer for ctype 'char[]' must be a bytes or list or tuple, not {type(value).__name__}"
    )


def _new_match(fields):
    glob = fields.get("topic_glob", NULL)
    if isinstance(glob, Text):
        glob = cdata.text_of(glob.value)
    elif glob is not NULL:
        raise TypeError(
            f"initializer for ctype 'char *' must be a cdata pointer, not {type(glob).__name__}"
        )
    numbers = {
        name: integer_converter(name, *INTEGERS[cname])(fields.get(name, 0))
        for name, cname in (("typemask", "int"), ("matchtag", "uint32_t"))
    }
    return Match(topic_glob=glob or None, **numbers)
