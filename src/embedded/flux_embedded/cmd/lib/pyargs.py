"""argparse as the commands use it that flux-core writes in Python: wrong usage is exit code 2."""

import argparse
import sys

from flux_embedded.cmd.lib.errors import UsageError


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
        long = any(option.startswith("--") for option in action.option_strings)
        return text + ("=" if long else " ") + metavar


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose ``exit`` raises, so that the dispatcher alone ends the process."""

    def __init__(self, *args, **kwargs):
        kwargs.setdefault("formatter_class", Formatter)
        super().__init__(*args, **kwargs)

    def exit(self, status=0, message=None):
        raise UsageError(message or "", code=status)

    def error(self, message):
        raise UsageError(f"{self.format_usage()}{self.prog}: error: {message}\n", code=2)

    def print_help(self, file=None):
        (file or sys.stdout).write(self.format_help())
