"""Ordered lists of host names (RFC 29)."""

import errno

from _flux.cdata import bytes_of
from _flux.ffi import pointer_to
from _flux.function import failure, function
from flux_embedded.formats import hostlist as text_form


class List:
    """A ``struct hostlist``.

    Attributes:
        hosts (list of str): the names
        at (int): where `hostlist_next` is
    """

    __slots__ = ("__weakref__", "_places", "at", "hosts")

    def __init__(self, hosts):
        self.hosts = hosts
        self.at = 0
        self._places = None

    def changed(self, hosts):
        self.hosts = hosts
        self._places = None

    def extend(self, hosts):
        self.hosts += list(hosts)
        self._places = None

    def places(self):
        """name -> where it is first in the list."""
        if self._places is None:
            places = {}
            for place, name in enumerate(self.hosts):
                places.setdefault(name, place)
            self._places = places
        return self._places


pointer_to("struct hostlist *", List)

_SPACES = str.maketrans("\t\n\v\f\r ", ",,,,,,")


def _decode(text):
    try:
        return text_form.decode(text.translate(_SPACES))
    except ValueError:
        raise failure(errno.EINVAL) from None


@function("struct hostlist *hostlist_create (void)")
def hostlist_create():
    return List([])


@function("void hostlist_destroy (struct hostlist *hl)", null="hl")
def hostlist_destroy(hl):
    pass


@function("struct hostlist *hostlist_decode (const char *s)")
def hostlist_decode(s):
    return List(_decode(s))


@function("char *hostlist_encode (struct hostlist *hl)")
def hostlist_encode(hl):
    return bytes_of(text_form.encode(hl.hosts))


@function("struct hostlist *hostlist_copy (const struct hostlist *hl)")
def hostlist_copy(hl):
    return List(list(hl.hosts))


@function("int hostlist_append (struct hostlist *hl, const char *hosts)")
def hostlist_append(hl, hosts):
    added = _decode(hosts)
    hl.extend(added)
    return len(added)


@function("int hostlist_append_list (struct hostlist *hl1, struct hostlist *hl2)")
def hostlist_append_list(hl1, hl2):
    added = len(hl2.hosts)
    hl1.extend(hl2.hosts)
    return added


@function("const char *hostlist_nth (struct hostlist *hl, int n)")
def hostlist_nth(hl, n):
    if n < 0:
        raise failure(errno.EINVAL)
    if n >= len(hl.hosts):
        raise failure(errno.ENOENT)
    return bytes_of(hl.hosts[n])


@function("int hostlist_find (struct hostlist *hl, const char *hostname)")
def hostlist_find(hl, hostname):
    if "[" in hostname or "]" in hostname:
        raise failure(errno.EINVAL)
    place = hl.places().get(hostname)
    if place is None:
        raise failure(errno.ENOENT)
    return place


@function("int hostlist_delete (struct hostlist *hl, const char *hosts)")
def hostlist_delete(hl, hosts):
    wanted = {}
    for name in _decode(hosts):
        wanted[name] = wanted.get(name, 0) + 1
    kept = []
    for name in hl.hosts:
        if wanted.get(name):
            wanted[name] -= 1
        else:
            kept.append(name)
    deleted = len(hl.hosts) - len(kept)
    hl.changed(kept)
    return deleted


@function("int hostlist_count (struct hostlist *hl)")
def hostlist_count(hl):
    return len(hl.hosts)


@function("void hostlist_sort (struct hostlist *hl)")
def hostlist_sort(hl):
    hl.changed(sorted(hl.hosts, key=text_form.sort_key))


@function("void hostlist_uniq (struct hostlist *hl)")
def hostlist_uniq(hl):
    hl.changed(sorted(dict.fromkeys(hl.hosts), key=text_form.sort_key))


@function("const char *hostlist_first (struct hostlist *hl)")
def hostlist_first(hl):
    hl.at = 0
    return bytes_of(hl.hosts[0]) if hl.hosts else None


@function("const char *hostlist_next (struct hostlist *hl)")
def hostlist_next(hl):
    hl.at += 1
    return bytes_of(hl.hosts[hl.at]) if hl.at < len(hl.hosts) else None


@function("const char *hostlist_last (struct hostlist *hl)")
def hostlist_last(hl):
    return bytes_of(hl.hosts[-1]) if hl.hosts else None
