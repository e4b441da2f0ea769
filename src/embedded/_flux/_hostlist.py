"""``_flux._hostlist``: the functions of libflux-hostlist that the bindings call, on ordered lists of host names (RFC 29)."""

import errno
from collections import Counter

from _flux.ffi import FFI, pointer_to
from _flux.function import Library, failure, function, functions, nothing
from flux_engine.formats import hostlist as text_form


class List:
    """A ``struct hostlist``: the names, `hosts`; `change` them."""

    __slots__ = ("__weakref__", "_places", "hosts")

    def __init__(self, hosts):
        self.change(hosts)

    def change(self, hosts):
        self.hosts = hosts
        self._places = None

    def places(self):
        """name -> its first index in the list."""
        if self._places is None:
            self._places = {}
            for place, name in enumerate(self.hosts):
                self._places.setdefault(name, place)
        return self._places


pointer_to("struct hostlist *", List)

_SPACES = str.maketrans("\t\n\v\f\r ", ",,,,,,")


def _decode(text):
    try:
        return text_form.decode(text.translate(_SPACES))
    except ValueError:
        raise failure(errno.EINVAL) from None


def _append(hl, names):
    added = len(names)
    hl.hosts += names
    hl.change(hl.hosts)
    return added


@function
def hostlist_nth(hl, n):
    """const char *hostlist_nth (struct hostlist *hl, int n)"""
    if n < 0:
        raise failure(errno.EINVAL)
    if n >= len(hl.hosts):
        raise failure(errno.ENOENT)
    return hl.hosts[n]


@function
def hostlist_find(hl, hostname):
    """int hostlist_find (struct hostlist *hl, const char *hostname)"""
    if "[" in hostname or "]" in hostname:
        raise failure(errno.EINVAL)
    place = hl.places().get(hostname)
    if place is None:
        raise failure(errno.ENOENT)
    return place


@function
def hostlist_delete(hl, hosts):
    """int hostlist_delete (struct hostlist *hl, const char *hosts)"""
    wanted, kept = Counter(_decode(hosts)), []
    for name in hl.hosts:
        if wanted[name]:
            wanted[name] -= 1
        else:
            kept.append(name)
    deleted = len(hl.hosts) - len(kept)
    hl.change(kept)
    return deleted


def _sort(hl, hosts):
    hl.change(sorted(hosts, key=text_form.sort_key))


functions(
    {
        "struct hostlist *hostlist_create (void)": lambda: List([]),
        "struct hostlist *hostlist_decode (const char *s)": lambda s: List(_decode(s)),
        "char *hostlist_encode (struct hostlist *hl)": lambda hl: text_form.encode(hl.hosts),
        "struct hostlist *hostlist_copy (const struct hostlist *hl)": lambda hl: List(list(hl.hosts)),
        "int hostlist_append (struct hostlist *hl, const char *hosts)": lambda hl, hosts: _append(hl, _decode(hosts)),
        "int hostlist_append_list (struct hostlist *hl, struct hostlist *more)": lambda hl, more: _append(hl, more.hosts),
        "int hostlist_count (struct hostlist *hl)": lambda hl: len(hl.hosts),
        "void hostlist_sort (struct hostlist *hl)": lambda hl: _sort(hl, hl.hosts),
        "void hostlist_uniq (struct hostlist *hl)": lambda hl: _sort(hl, set(hl.hosts)),
        "const char *hostlist_last (struct hostlist *hl)": lambda hl: hl.hosts[-1] if hl.hosts else None,
        "void hostlist_destroy (opt struct hostlist *hl)": nothing,
    }
)  # fmt: skip


lib = Library(FFI, {})
ffi = lib.get_ffi()
