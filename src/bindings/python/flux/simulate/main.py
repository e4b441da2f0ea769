# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux-simulate``, the command as a program of its own, where no ``flux`` calls it."""

from flux_engine.command.call import call, prepare_streams


def _command(argv):
    from flux.simulate.command import main

    return main(argv)


def run(argv):
    """Run the command; returns the exit status.

    Args:
        argv (list of str): the words after the command's name
    """
    prepare_streams()
    return call("simulate", _command, argv)
