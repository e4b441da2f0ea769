# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux getattr`` and ``setattr``: broker attributes; ``flux version``."""

import os

import flux
from flux_embedded.about import HOST_VERSION, describe
from flux_embedded.cmd.lib import ask
from flux_engine.command.options import Parser


def getattr_(argv):
    parser = Parser("flux-getattr", status=1)
    parser.option("name")
    name = parser.parse_args(argv).name
    # One broker plays all ranks: a task, or a script of a node, has its rank in the environment.
    rank = os.environ.get("FLUX_EMBEDDED_RANK") if name == "rank" else None
    print(rank or ask("attr.get", {"name": name}, name, plain=True)["value"])


def setattr_(argv):
    parser = Parser("flux-setattr", status=1)
    parser.option("name")
    parser.option("value")
    args = parser.parse_args(argv)
    ask("attr.set", {"name": args.name, "value": args.value}, args.name)


def version(argv):
    Parser("flux-version", status=1).parse_args(argv)
    print(f"commands:    \t\t{HOST_VERSION}")
    print(f"libflux-core:\t\t{HOST_VERSION}")
    if os.environ.get("FLUX_URI"):
        try:
            broker = flux.Flux().attr_get("version")
        except OSError:
            pass
        else:
            print(f"broker:  \t\t{broker}")
            print(f"FLUX_URI:\t\t{os.environ['FLUX_URI']}")
    print(f"build-options:\t\t{describe()}")
