# SPDX-License-Identifier: LGPL-3.0-or-later
"""Options of the commands: argparse, with the options that several commands share."""

import argparse
import functools


class Parser(argparse.ArgumentParser):
    """The options of a command.

    Args:
        prog (str): the prefix of messages, such as ``flux-job``
        status (int): exit status of wrong usage: 2, or 1 where flux-core has the command in C
        more: as for ArgumentParser
    """

    def __init__(self, prog, status=2, **more):
        super().__init__(prog=prog, **more)
        self.status = status
        self._commands = None

    def error(self, message):
        self.exit(self.status, f"{self.format_usage()}{self.prog}: ERROR: {message}\n")

    def command(self, name, function, text=None):
        """Add the subcommand `name`, run by ``function(args)`` and described by `text`; returns its parser."""
        if self._commands is None:
            self._commands = self.add_subparsers(
                metavar="COMMAND",
                dest="subcommand",
                required=True,
                parser_class=functools.partial(Parser, status=self.status),
            )
        one = self._commands.add_parser(name, description=text, help=text)
        one.set_defaults(function=function)
        return one

    def option(self, names, text=None, **more):
        """Add an option, or an argument.

        Args:
            names (str): ``-q --quiet``, or with a value ``-t --timeout=FSD``; of an argument ``id=JOBID``
            text (str): its description
            more: as for ``add_argument``
        """
        return _add_option(self, names, text, **more)

    def group(self, title):
        """Add a group of options, with a title in the help; returns its function `option`."""
        return functools.partial(_add_option, self.add_argument_group(title))

    def takes_value(self, word):
        """Return whether a word is an option whose value is the next word."""
        return any(word in one.option_strings and one.nargs != 0 for one in self._actions)

    def add_table(self):
        """Add the options of a command that prints a table: ``--format`` and ``--no-header``."""
        self.option(
            "-o --format=FORMAT",
            "a format, in Python's syntax, or the name of one ('help' lists them)",
            default="default",
        )
        self.option("-n --no-header", "leave the header out")

    def add_queues(self):
        """Add ``--queue``, which may name several."""
        self.option("-q --queue=QUEUE,...", "these queues only", action="append")

    def run(self, argv):
        """Run the subcommand in argv; returns the exit status."""
        args = self.parse_args(argv)
        return args.function(args)


def _add_option(group, names, text=None, **more):
    names, has_value, metavar = names.partition("=")
    if metavar:
        more["metavar"] = metavar
    elif names[0] == "-" and not has_value:
        more.setdefault("action", "store_true")
    return group.add_argument(*names.split(), help=text, **more)
