# SPDX-License-Identifier: LGPL-3.0-or-later
"""Ordered lists of host names as text (RFC 29), read and written by the code of pools."""

from flux.resource.pool.hosts import encode_pieces, name_piece, name_pieces


def decode(text):
    """Return the host names of a hostlist, such as ``fluke[0-3,7],login``, as a list of str.

    Raises:
        ValueError: malformed, or more than 2^20 names.
    """
    hosts = []
    for prefix, width, low, count in name_pieces(text):
        if width is None:
            hosts.append(prefix)
        else:
            hosts += [f"{prefix}{i:0{width}d}" for i in range(low, low + count)]
    return hosts


def encode(hosts):
    """Return the canonical hostlist of an iterable of names; order and repeats are kept."""
    return encode_pieces(map(name_piece, hosts))


def sort_key(name):
    """Order by prefix, then by number, then by width."""
    prefix, width, number, _ = name_piece(name)
    return (prefix, -1, 0) if width is None else (prefix, number, width)
