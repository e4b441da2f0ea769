"""``flux help``: what commands there are, and each one's own help."""

import sys

from flux_embedded.cmd import commands

HEAD = """\
Usage: flux [OPTIONS] COMMAND ARGS
  -h, --help             Display this message.
  -v, --verbose          Be verbose about environment and command search
  -V, --version          Display command and component versions
  -p, --parent           Set environment of parent instead of current instance
  -r, --root             Set environment of root instead of current instance

This is the embedded instance of flux-scheduler: a subset of flux-core's
commands, in their syntax. For general Flux documentation, please visit
    https://flux-framework.readthedocs.io
"""


def usage():
    """What ``flux --help`` prints."""
    return f"{HEAD}{commands.overview()}\nSee 'flux help COMMAND' for more information about a specific command.\n"


def main(argv):
    if not argv:
        sys.stdout.write(usage())
        return 0
    from flux_embedded.cmd.dispatch import run

    return run([argv[0], "--help"])
