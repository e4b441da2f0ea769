"""Ordered lists of host names (RFC 29)."""

from collections.abc import Iterable

from flux_embedded.formats import hostlist as _format

__all__ = ["Hostlist", "decode"]


def decode(text):
    """Return the Hostlist of a string.

    Raises:
        ValueError: malformed
    """
    return Hostlist(text)


def _names(arg):
    """The host names that `arg` stands for: string, Hostlist, or iterable of strings."""
    if isinstance(arg, Hostlist):
        return arg.hosts
    if isinstance(arg, str):
        return _decode(arg)
    if not isinstance(arg, Iterable):
        raise TypeError(f"Hostlist(): expected string or Iterable, got {type(arg)}")
    names = []
    for text in arg:
        if not isinstance(text, str):
            raise TypeError(f"hostlist member {text!r} is not a string")
        names += _decode(text)
    return names


def _decode(text):
    try:
        return _format.decode(text)
    except ValueError:
        raise ValueError(f"Invalid hostlist: '{text}'") from None


class Hostlist:
    """A list of host names; order and repeats are kept.

    Two lists are equal only if they are the same object, as in a real Flux: compare what they encode to.

    Args:
        arg: hostlist string (``"n[0-3],login"``), Hostlist, or iterable of such strings

    Raises:
        ValueError: malformed string
        TypeError: not made of strings
    """

    __slots__ = ("hosts", "_places")

    def __init__(self, arg=""):
        self.hosts = list(_names(arg))
        self._places = None

    # -- changing it -----------------------------------------------------------

    def append(self, *args):
        """Add hosts at the end; returns how many."""
        before = len(self.hosts)
        for arg in args:
            self.hosts += _names(arg)
        self._places = None
        return len(self.hosts) - before

    def delete(self, hosts):
        """Take each of `hosts` out once; returns how many were found."""
        wanted = {}
        for name in _names(hosts):
            wanted[name] = wanted.get(name, 0) + 1
        kept = []
        for name in self.hosts:
            if wanted.get(name):
                wanted[name] -= 1
            else:
                kept.append(name)
        deleted = len(self.hosts) - len(kept)
        self.hosts = kept
        self._places = None
        return deleted

    def sort(self):
        """Sort by prefix, then by number; returns self."""
        self.hosts.sort(key=_format.sort_key)
        self._places = None
        return self

    def uniq(self):
        """Sort and leave out repeats; returns self."""
        self.hosts = list(dict.fromkeys(self.hosts))
        return self.sort()

    # -- asking it -------------------------------------------------------------

    def _positions(self):
        if self._places is None:
            places = {}
            for i, name in enumerate(self.hosts):
                places.setdefault(name, i)
            self._places = places
        return self._places

    def find(self, host):
        """The first position of a host.

        Raises:
            FileNotFoundError: it is not in the list
        """
        place = self._positions().get(host)
        if place is None:
            raise FileNotFoundError(f"host '{host}' not found")
        return place

    def index(self, hosts, ignore_nomatch=False):
        """The first position of each of `hosts`, as a list.

        Args:
            hosts: string, Hostlist, or iterable of strings
            ignore_nomatch (bool): leave out those that are not there

        Raises:
            FileNotFoundError: one is not there
        """
        places = self._positions()
        names = _names(hosts)
        missing = [name for name in names if name not in places]
        if missing and not ignore_nomatch:
            plural = "s" if len(missing) > 1 else ""
            raise FileNotFoundError(f"host{plural} '{_format.encode(missing)}' not found")
        return [places[name] for name in names if name in places]

    def count(self):
        """The length of the list."""
        return len(self.hosts)

    def copy(self):
        return _of_names(list(self.hosts))

    def expand(self):
        """The names as a list of str."""
        return list(self.hosts)

    def encode(self):
        """The list as a string, ranges in brackets."""
        return _format.encode(self.hosts)

    # -- as a container --------------------------------------------------------

    def __len__(self):
        return len(self.hosts)

    def __contains__(self, host):
        return host in self._positions()

    def __iter__(self):
        return iter(self.hosts)

    def __getitem__(self, index):
        """One name by position, or a Hostlist by slice or by an IDset of positions."""
        if isinstance(index, int):
            try:
                return self.hosts[index]
            except IndexError:
                raise IndexError("Hostlist index out of range") from None
        if isinstance(index, slice):
            return _of_names(self.hosts[index])
        try:
            return _of_names([self.hosts[i] for i in index])
        except IndexError:
            raise IndexError(f"hostlist of {len(self)} hosts has no positions {index}") from None

    def __str__(self):
        return self.encode()

    def __repr__(self):
        return f"Hostlist('{self.encode()}')"


def _of_names(names):
    result = Hostlist()
    result.hosts = names
    return result
