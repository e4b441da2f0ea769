# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux getattr`` and ``setattr``: broker attributes."""

import os

import flux
from flux_engine.command.errors import CommandError, error_text
from flux_engine.command.options import Parser

#: attributes that each rank has for itself, on another one than 0; None: its number
_OF_RANK = {"rank": None, "tbon.level": "1", "tbon.descendants": "0"}


def get(handle, name):
    """The value of an attribute; the rank is the one that ``flux exec`` plays."""
    rank = os.environ.get("FLUX_EMBEDDED_RANK", "0")
    if rank != "0" and name in _OF_RANK:
        return _OF_RANK[name] or rank
    try:
        return handle.attr_get(name)
    except OSError as exc:
        raise CommandError(f"{name}: {os.strerror(exc.errno)}") from None


def getattr_(argv):
    parser = Parser("flux-getattr", status=1)
    parser.add_argument("name")
    print(get(flux.Flux(), parser.parse_args(argv).name))


def setattr_(argv):
    parser = Parser("flux-setattr", status=1)
    parser.add_argument("name")
    parser.add_argument("value")
    args = parser.parse_args(argv)
    try:
        flux.Flux().rpc("attr.set", {"name": args.name, "value": args.value}).get()
    except OSError as exc:
        raise CommandError(f"{args.name}: {error_text(exc)}") from None
