# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux-simulate``: the command as a program of its own, without ``flux``."""

from flux_engine.command.errors import call, prepare_streams


def _command(argv):
    from flux.simulate.command import main

    return main(argv)


def run(argv):
    """Run the command on the words after its name. Return the exit status."""
    prepare_streams()
    return call("simulate", _command, argv)
