"""argparse as the commands use it that flux-core writes in Python: wrong usage is exit code 2."""

import argparse
import sys

from flux_embedded.cmd.lib.errors import UsageError


def color(text):
    """``--color=WHEN``: checked, and no more."""
    if text not in ("never", "always", "auto"):
        raise argparse.ArgumentTypeError(f"Invalid argument to --color: '{text}'")
    return text


class Formatter(argparse.HelpFormatter):
    """``-o, --format=FORMAT`` in one piece, long options of one column."""

    def __init__(self, prog, **kwargs):
        kwargs.setdefault("max_help_position", 26)
        kwargs.setdefault("width", 78)
        super().__init__(prog, **kwargs)

    def _format_action_invocation(self, action):
        if not action.option_strings:
            return super()._format_action_invocation(action)
        text = ", ".join(action.option_strings)
        if not any(len(option) == 2 for option in action.option_strings):
            text = "    " + text
        if action.nargs == 0:
            return text
        metavar = self._format_args(action, action.dest.upper())
        return f"{text}={metavar}"


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose ``exit`` raises, so that the dispatcher alone ends the process."""

    def __init__(self, *args, **kwargs):
        kwargs.setdefault("formatter_class", Formatter)
        super().__init__(*args, **kwargs)
        self._commands = None

    def command(self, name, function, description=None, metavar=None, **more):
        """Add the subcommand `name`, done by ``function(args)``; returns its parser.

        metavar, with the first of them: what help shows in place of their names. more: as for
        ``add_parser``.
        """
        if self._commands is None:
            self._commands = self.add_subparsers(metavar=metavar, dest="subcommand", required=True)
        one = self._commands.add_parser(name, description=description, **more)
        one.set_defaults(function=function)
        return one

    def add_format(self):
        """Add ``--format``, as the commands that print a table have it."""
        self.add_argument(
            "-o",
            "--format",
            metavar="FORMAT",
            help="Specify output format using Python's string format syntax or a defined format by "
            "name (use 'help' to get a list of names)",
        )

    def add_no_header(self):
        """Add ``--no-header``."""
        self.add_argument("-n", "--no-header", action="store_true", help="Suppress header output")

    def add_queues(self):
        """Add ``--queue``, which may name several."""
        self.add_argument(
            "-q",
            "--queue",
            action="append",
            metavar="QUEUE,...",
            help="Include only specified queues in output",
        )

    def run(self, argv):
        """Do what the subcommand in argv says; returns the exit code."""
        args = self.parse_args(argv)
        return args.function(args)

    def exit(self, status=0, message=None):
        raise UsageError(message or "", code=status)

    def error(self, message):
        raise UsageError(f"{self.format_usage()}{self.prog}: error: {message}\n", code=2)

    def print_help(self, file=None):
        (file or sys.stdout).write(self.format_help())
