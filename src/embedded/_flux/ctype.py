"""C types by name, as ``ffi.typeof`` returns them."""

#: Minimum and maximum of each integer type.
INTEGERS = {
    "char": (-(1 << 7), (1 << 7) - 1),
    "int": (-(1 << 31), (1 << 31) - 1),
    "unsigned int": (0, (1 << 32) - 1),
    "uint32_t": (0, (1 << 32) - 1),
    "flux_job_state_t": (0, (1 << 32) - 1),
    "flux_job_result_t": (0, (1 << 32) - 1),
    "uint64_t": (0, (1 << 64) - 1),
    "size_t": (0, (1 << 64) - 1),
    "flux_jobid_t": (0, (1 << 64) - 1),
}

#: Names of pointers to functions.
CALLBACKS = (
    "flux_continuation_f", "flux_free_f", "flux_future_init_f", "flux_msg_handler_f", "flux_watcher_f",
)  # fmt: skip

_KNOWN = {}


class CType:
    """A type; there is one object of each, so that they may be compared with ``is``.

    Attributes:
        cname (str): its name in C, without ``const``
        kind (str): "primitive", "pointer", "array", "struct", "function" or "void"
        item (CType): of a pointer or array: type of the target or the items
        length (int): of an array; None if it is not part of the type
        result (CType), args (tuple of CType), ellipsis (bool): of a function
    """

    __slots__ = ("args", "cname", "ellipsis", "item", "kind", "length", "result")

    def __init__(self, cname, kind, item=None, length=None, result=None, args=(), ellipsis=False):
        self.cname = cname
        self.kind = kind
        self.item = item
        self.length = length
        self.result = result
        self.args = args
        self.ellipsis = ellipsis

    def __repr__(self):
        return f"<ctype '{self.cname}'>"


def named(text):
    """The CType of a declaration without a name, such as ``char *`` or ``int[1]``."""
    known = _KNOWN.get(text)
    if known is None:
        known = _KNOWN[text] = _parse(text)
    return known


def _parse(text):
    words = text.replace("*", " * ").replace("[", " [").split()
    words = [word for word in words if word != "const"]
    if words and words[-1].endswith("]"):
        size = words.pop()[1:-1]
        item = named(_joined(words))
        cname = f"{item.cname}[{size}]"
        return _KNOWN.setdefault(cname, CType(cname, "array", item, int(size) if size else None))
    cname = _joined(words)
    if cname != text:
        return named(cname)
    if cname.endswith("*"):
        return CType(cname, "pointer", named(cname[:-1].rstrip()))
    if cname == "void":
        return CType(cname, "void")
    if cname in INTEGERS or cname in ("bool", "double", "float"):
        return CType(cname, "primitive")
    if cname in CALLBACKS:
        return CType(cname, "function")
    return CType(cname, "struct")


def _joined(words):
    """``flux_t * *`` as C's usual form: ``flux_t **``."""
    return " ".join(words).replace("* *", "**").replace("* *", "**")


def integer_converter(cname, low, high):
    """A function that checks a number for an integer type: TypeError, OverflowError."""

    def convert(value):
        if not isinstance(value, int):
            raise TypeError("an integer is required")
        if not low <= value <= high:
            raise OverflowError(f"integer {value} does not fit '{cname}'")
        return int(value)

    return convert


class Prototype:
    """The name, arguments and result of a function.

    Args:
        text (str): ``int flux_rpc_get (flux_future_t *f, out opt const char **s)``

    Attributes:
        names (list of str): those of its arguments
        out, opt (list of str): arguments marked so: they point to results; they may be NULL
        buffers (list of str): arguments that text is written to: ``char *`` without ``const``
        type (CType): its type
    """

    def __init__(self, text):
        head, _, rest = text.partition("(")
        result = named(" ".join(head.replace("*", " * ").split()[:-1]))
        self.names, self.out, self.opt, self.buffers, args = [], [], [], [], []
        ellipsis = False
        for part in rest.rstrip(") ").split(","):
            *words, name = part.replace("*", " * ").split()
            if name == "...":
                ellipsis = True
            elif name != "void":
                self.names.append(name)
                for mark, marked in (("out", self.out), ("opt", self.opt)):
                    if words[0] == mark:
                        marked.append(name)
                        del words[0]
                args.append(named(" ".join(words)))
                if words == ["char", "*"]:
                    self.buffers.append(name)
        cname = ", ".join([arg.cname for arg in args] + ["..."] * ellipsis)
        cname = f"{result.cname}(*)({cname})"
        self.type = CType(cname, "function", result=result, args=tuple(args), ellipsis=ellipsis)
