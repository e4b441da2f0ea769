# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux version``: the version of this Flux."""

import os

import flux
from flux_embedded.about import HOST_VERSION, describe
from flux_engine.command.options import Parser


def main(argv):
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
