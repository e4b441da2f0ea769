"""C values in Python: NULL, arrays, text with a size, and handles of objects."""

import weakref

from _flux.ctype import named


class Null:
    """The null pointer; false, and equal to itself only."""

    __slots__ = ()
    ctype = named("void *")

    def __bool__(self):
        return False

    def __repr__(self):
        return "<cdata 'void *' NULL>"


NULL = Null()


class Array(list):
    """An array of the CType `ctype`; most are of one item, in which a function puts a result."""

    __slots__ = ("ctype",)

    def __init__(self, ctype, items):
        super().__init__(items)
        self.ctype = ctype

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other

    def __ne__(self, other):
        return self is not other


class Text:
    """A ``char[]``: bytes, and its size including the terminating zero."""

    __slots__ = ("size", "value")
    ctype = named("char[]")

    def __init__(self, value, size):
        self.value = value
        self.size = size

    def __len__(self):
        return self.size


class Error:
    """A ``flux_error_t``: one line of error text."""

    __slots__ = ("text",)
    ctype = named("flux_error_t")

    #: bytes that fit, without the zero
    ROOM = 159

    def __init__(self):
        self.text = b""

    def write(self, text):
        self.text = text.encode("utf-8", "surrogateescape")[: self.ROOM]


class Match:
    """A ``struct flux_match``: a pattern of messages; a matchtag of 0 and no glob match any."""

    __slots__ = ("matchtag", "topic_glob", "typemask")
    ctype = named("struct flux_match")

    def __init__(self, typemask=0, matchtag=0, topic_glob=None):
        self.typemask = typemask
        self.matchtag = matchtag
        self.topic_glob = topic_glob


class Handle:
    """A ``void *`` that stands for an object, for callbacks.

    A receiver of one as the argument of a callback refers to it weakly (`weak`), as C does: it lives as long as
    its maker keeps it.  The bindings keep it in the object that it stands for.
    """

    __slots__ = ("__weakref__", "object")
    ctype = named("void *")

    def __init__(self, of):
        self.object = of


def weak(arg):
    """A function that returns a callback's argument, or None once it was freed."""
    return (lambda: NULL) if arg is None or arg is NULL else weakref.ref(arg)


def text_of(value):
    """The text of a ``char *``, given as bytes."""
    if b"\0" in value:
        value = value.partition(b"\0")[0]
    return value.decode("utf-8", "surrogateescape")


def bytes_of(text):
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # JSON can name half a surrogate pair, UTF-8 cannot
        return text.encode("utf-8", "replace")
