"""Functions of C: a prototype, a Python function, and the checks between them.

    @function
    def flux_respond(h, request, s):
        "int flux_respond (flux_t *h, const flux_msg_t *request, opt const char *s)"

The Python function gets objects, int, float and str, and None for a NULL of an argument marked ``opt``; any other NULL is EINVAL.
It returns such values, too, and raises OSError where C returns -1 or NULL and sets errno; a function of type int may
return None for 0.  The last arguments, if they are marked ``out``, point to results: the Python function is not given them, and
returns the value, or a tuple of the values.  The code that checks and converts the arguments is generated from the prototype, and
behaves like cffi's: TypeError for another type, OverflowError for a number that does not fit.  `functions` declares a table of
one-line functions.

``lib.flux_respond(...)`` returns -1 and sets ``ffi.errno``, as in C.  The bindings' own wrapper
(``flux.wrapper.FunctionWrapper``) turns that into an exception again, and processes the arguments twice.  `Wrapped` replaces it: it
behaves the same, and is made once for each function.  `look_up` replaces the method that finds a function and stores it in the
wrapper's class.
"""

import errno
import os
from types import MethodType

from _flux.cdata import NULL, Array, Match, Text, bytes_of, text_of
from _flux.ctype import INTEGERS, Prototype, integer_converter
from _flux.ffi import class_of

#: name -> (prototype text, function)
_DECLARED = {}


def functions(table):
    """Declare the Python function for each prototype of a table."""
    for prototype, implementation in table.items():
        name = prototype.partition("(")[0].split()[-1].lstrip("*")
        _DECLARED[name] = (prototype, implementation)


def function(implementation):
    """Decorator: the function implements the C function whose prototype is its docstring."""
    functions({implementation.__doc__: implementation})
    return implementation


def failure(number):
    """The OSError of a function that failed, with the bindings' text for its errno."""
    name = errno.errorcode.get(number, f"Errno{number}")
    return OSError(number, f"{name}: {os.strerror(number)}")


class Function:
    """A function of C, of the CType `ctype`; `call` it as in C."""

    def __init__(self, name, ffi):
        prototype, self.implementation = _DECLARED[name]
        self._prototype = Prototype(prototype)
        self._ffi = ffi
        self.name = self.__name__ = name
        self.ctype = self._prototype.type
        self._plain = None

    def __call__(self, *args):
        if self._plain is None:
            self._plain = self.bound()
        try:
            if any(isinstance(arg, str) for arg in args):
                raise ValueError("a char * is bytes")
            result = self._plain(None, *args)
        except OSError as exc:
            self._ffi.errno = exc.errno or errno.EINVAL
            return -1 if self.ctype.result.kind == "primitive" else NULL
        except ValueError as exc:  # of the wrappers' classes
            raise TypeError(str(exc)) from None
        if result is None and self.ctype.result.kind == "pointer":
            self._ffi.errno = 0
            return NULL
        return result

    def __repr__(self):
        return f"<cdata '{self.ctype.cname}' {self.name}>"

    def bound(self, add_handle=False):
        """A Python function of a wrapper of the bindings and the arguments, which checks these and calls the implementation.

        None stands for NULL, a wrapper for its pointer, str for ``char *``. With `add_handle` the first wrapper's own pointer
        goes first.
        """
        names = [f"a{number}" for number in range(len(self.ctype.args))]
        scope = {
            "function": self.implementation,
            "wrong_number": self._wrong_number,
            "invalid": self._invalid,
            "pointer": _pointer,
            "NULL": NULL,
            "Text": Text,
        }
        given = names[add_handle:]
        lines = ["def call(owner, *args):"]
        if add_handle:
            lines += [
                "    a0 = owner._handle",
                f"    if a0 is None: raise ValueError({_NO_HANDLE!r})",
            ]
        if self.ctype.ellipsis:
            lines += [f"    args = args[:{len(given)}]"]
        targets = f"[{', '.join(given)}] = args"
        wrong = f"raise wrong_number(args, {add_handle}) from None"
        lines += ["    try:", f"        {targets}", f"    except ValueError: {wrong}", "    try:"]
        for number in range(add_handle, len(names)):
            is_right = self._check(number, names[number], scope)
            lines.append(
                f"        if not ({is_right}): {names[number]} = convert{number}({names[number]})"
            )
        lines += ["        pass", "    except TypeError as exc: raise invalid(args) from exc"]
        lines += ["    " + line for line in self._call(names)]
        exec("\n".join(lines), scope)
        call = scope["call"]
        call.__name__ = self.name
        return call

    def _call(self, names):
        """Lines of code that call the implementation, and return the C function's result."""
        out, result = self._prototype.out, self.ctype.result
        passed = len(names) - len(out)
        call = f"function({', '.join(names[:passed])})"
        if not out:
            if result.cname == "char *":
                call = f"pointer({call}, None)"
            if result.kind == "void":
                return [call]
            if result.cname != "int":
                return [f"return {call}"]
            return [f"result = {call}", "return 0 if result is None else result"]
        lines = [f"{', '.join(f'r{number}' for number in range(len(out)))} = {call}"]
        for number, argument in enumerate(out):
            name, value = names[passed + number], f"r{number}"
            if self.ctype.args[passed + number].item.kind == "pointer":
                value = f"pointer({value})"
            put = f"{name}[0] = {value}"
            lines.append(
                f"if {name} is not None: {put}" if argument in self._prototype.opt else put
            )
        return [*lines, "return 0"]

    def _check(self, number, name, scope):
        """The condition under which an argument is right as it is; a function that converts any other is entered in `scope`."""
        argument, ctype = self._prototype.names[number], self.ctype.args[number]
        convert = f"convert{number}"
        if ctype.cname in INTEGERS:
            low, high = INTEGERS[ctype.cname]
            scope[convert] = integer_converter(ctype.cname, low, high)
            return f"{name}.__class__ is int and {low} <= {name} <= {high}"
        if ctype.kind == "primitive":
            is_bool = ctype.cname == "bool"
            scope[convert] = integer_converter("_Bool", 0, 1) if is_bool else _double
            return f"{name}.__class__ is {'bool' if is_bool else 'float'}"
        if ctype.cname == "void *":
            scope[convert] = lambda value: None
            return f"{name} is not NULL"
        if ctype.kind == "function":
            scope[convert] = _no_callback
            return f"callable({name})"
        right = "False"
        if argument in self._prototype.buffers:
            take = lambda value: None
            right = f"{name}.__class__ is Text"
        elif ctype.cname == "char *":
            take = _take_text
            right = f"{name}.__class__ is str"
        else:
            classes = (Match,) if ctype.cname == "struct flux_match" else class_of(ctype)
            take = _array_taker(ctype.item)
            if classes:
                take = lambda value: value if isinstance(value, classes) else None
                scope[f"class{number}"] = classes[0]
                right = f"{name}.__class__ is class{number}"
        scope[convert] = _pointer_converter(ctype, take, argument in self._prototype.opt)
        return right

    def _wrong_number(self, args, add_handle):
        from flux.wrapper import WrongNumArguments

        args = [None] * add_handle + list(args)
        return WrongNumArguments(self.name, self.ctype.cname, self.ctype, args, None)

    def _invalid(self, args):
        from flux.wrapper import InvalidArguments

        return InvalidArguments(self.name, self.ctype.cname, args)


_NO_HANDLE = "Attempting to call a cached, bound method that requires a handle with a NULL handle"


class Wrapped:
    """Replaces ``flux.wrapper.FunctionWrapper``: a Python function for each declared one; `base` is the class of the wrappers."""

    base = ()

    def __new__(cls, fun, name, function_type, ffi, add_handle=False):
        call = fun.bound(add_handle)
        # The implementation raises exceptions, so results need no check.
        call.set_error_check = lambda is_error: None
        return call


def look_up(wrapper, name):
    """Replaces ``flux.wrapper.Wrapper.__getattr__``: the C function or constant for a wrapper's attribute.

    The function is stored unwrapped in the wrapper's class: the bindings would wrap it once more.

    Raises:
        AttributeError: it is a name of Python's own, or masked by the wrapper
    """
    if name == "lib" or (name.startswith("__") and name.endswith("__")):
        raise AttributeError(name)
    lib = wrapper.lib
    for full in (name, *(prefix + name for prefix in wrapper.prefixes)):
        found = getattr(lib, full, None)
        if found is not None:
            break
    else:
        from flux.wrapper import ErrorPrinter

        found = ErrorPrinter(name, wrapper.prefixes)
    if not isinstance(found, Function):
        setattr(wrapper, name, found)
        return found
    call = wrapper.check_wrap(found, name)
    setattr(type(wrapper), name, call)
    return MethodType(call, wrapper)


# -- conversion of arguments and results -------------------------------------------------------------------


def _double(value):
    if isinstance(value, (str, bytes)):
        raise TypeError("must be real number, not str")
    return float(value)


def _no_callback(value):
    if value is not NULL and value is not None:
        raise TypeError(f"a function is required, not {type(value).__name__}")


def _pointer(value, null=NULL):
    """A result as a pointer: ``char *`` for text, `null` for None."""
    if value is None:
        return null
    return bytes_of(value) if value.__class__ is str else value


def _pointer_converter(ctype, take, nullable):
    """A function that checks a pointer.

    Args:
        ctype (CType): its type
        take: ``take(value)`` converts a value for the implementation; None if it is not of this type
        nullable (bool): whether NULL is allowed
    """

    def convert(value):
        if isinstance(value, Wrapped.base):
            value = value.handle
        taken = take(value)
        if taken is not None:
            return taken
        if value is NULL or value is None:
            if nullable:
                return None
            raise failure(errno.EINVAL)
        wanted = "bytes or list or tuple" if take is _take_text else "cdata pointer"
        raise TypeError(
            f"initializer for ctype '{ctype.cname}' must be a {wanted}, not {type(value).__name__}"
        )

    return convert


def _take_text(value):
    if value.__class__ is bytes:
        return text_of(value)
    if value.__class__ is Text:
        return text_of(value.value)
    return str(value) if isinstance(value, str) else None


def _array_taker(item):
    """A check of arguments for results: ``int *``, ``const char **``, ``flux_error_t *``."""

    def take(value):
        if value.__class__ is not Array:
            return None
        other = value.ctype.item
        # Pointers to pointers are interchangeable: the bindings cast them back and forth.
        return value if other is item or other.kind == item.kind == "pointer" else None

    return take


class Library:
    """``lib``: functions and constants of a C library, each made on first use."""

    def __init__(self, make_ffi, constants):
        self.__dict__.update(constants)
        self._ffi = make_ffi(self)

    def get_ffi(self):
        """The FFI that goes with it."""
        return self._ffi

    def define(self, name, value):
        setattr(self, name, value)

    def __getattr__(self, name):
        if name not in _DECLARED:
            raise AttributeError(name)
        made = Function(name, self._ffi)
        setattr(self, name, made)
        return made

    def __dir__(self):
        return [name for name in self.__dict__ if not name.startswith("_")]


def nothing(pointer):
    """Destroys an object: a no-op, since Python counts references."""


def itself(pointer):
    """Takes another reference: a no-op for the same reason."""
    return pointer


functions({"void free (opt void *pointer)": nothing})
