# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux getattr`` and ``setattr``: broker attributes."""

import os

import flux
from flux_engine.command.errors import CommandError, error_text
from flux_engine.command.options import Parser


def getattr_(argv):
    parser = Parser("flux-getattr", status=1)
    parser.add_argument("name")
    name = parser.parse_args(argv).name
    # One broker plays all ranks: a task, or a script of a node, has its rank in the environment.
    rank = os.environ.get("FLUX_EMBEDDED_RANK") if name == "rank" else None
    handle = flux.Flux()
    try:
        print(rank or handle.attr_get(name))
    except OSError as exc:
        raise CommandError(f"{name}: {os.strerror(exc.errno)}") from None


def setattr_(argv):
    parser = Parser("flux-setattr", status=1)
    parser.add_argument("name")
    parser.add_argument("value")
    args = parser.parse_args(argv)
    try:
        flux.Flux().rpc("attr.set", {"name": args.name, "value": args.value}).get()
    except OSError as exc:
        raise CommandError(f"{args.name}: {error_text(exc)}") from None
