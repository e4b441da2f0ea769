# SPDX-License-Identifier: LGPL-3.0-or-later
"""The ``flux`` command of the embedded instance."""


def main(argv=None):
    """Run one command line (without the program's name) and return its exit code."""
    from flux_embedded.cmd.later import postpone

    postpone()
    from flux_embedded.cmd.dispatch import run

    return run(argv)
