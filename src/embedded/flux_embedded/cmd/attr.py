# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux getattr`` and ``setattr``: broker attributes."""

import os

from flux_embedded.cmd.lib.ask import ask
from flux_engine.command.options import Parser


def getattr_(argv):
    parser = Parser("flux-getattr", status=1)
    parser.add_argument("name")
    name = parser.parse_args(argv).name
    # One broker plays all ranks: a task, or a script of a node, has its rank in the environment.
    rank = os.environ.get("FLUX_EMBEDDED_RANK") if name == "rank" else None
    print(rank or ask("attr.get", {"name": name}, name, plain=True)["value"])


def setattr_(argv):
    parser = Parser("flux-setattr", status=1)
    parser.add_argument("name")
    parser.add_argument("value")
    args = parser.parse_args(argv)
    ask("attr.set", {"name": args.name, "value": args.value}, args.name)
