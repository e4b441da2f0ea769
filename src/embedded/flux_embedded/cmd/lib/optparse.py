"""Option parsing in the manner of the commands that flux-core writes in C.

    @command("flux-getattr", "name", "Get broker attribute", args=1)
    def getattr_(opts):
        ...

makes a function of options one of ``argv``; `Group` puts several under one name. Options come before arguments, long ones may be abbreviated, messages and usage text have GNU getopt's form, wrong usage is
exit code 1. Commands that flux-core writes in Python use :mod:`flux_embedded.cmd.lib.pyargs`.
"""

import functools
import sys
import textwrap

from flux_embedded.cmd.lib.errors import UsageError

COLUMN = 25
WIDTH = 80


class Opt:
    """One option.

    Args:
        name: long name without dashes.
        key: one-letter name or None.
        arg: name of the argument in usage text; None for a flag.
        usage: description.
        optional: the argument may be left out (``--name`` or ``--name=ARG``).
        kind: "str", "int" or "count"; what :meth:`Options.get` returns.
        hidden: not shown by ``--help``.
    """

    __slots__ = ("name", "key", "arg", "usage", "optional", "kind", "hidden")

    def __init__(
        self, name, key=None, arg=None, usage="", optional=False, kind="str", hidden=False
    ):
        self.name = name
        self.key = key
        self.arg = arg
        self.usage = usage
        self.optional = optional
        self.kind = kind
        self.hidden = hidden


class Options:
    """The outcome of parsing: option values by long name, and ``args``, what is left."""

    def __init__(self, parser):
        self.parser = parser
        self.values = {}
        self.args = []

    def fail_usage(self):
        """The exception to raise for arguments that make no sense."""
        return UsageError(self.parser.usage())

    def __contains__(self, name):
        return name in self.values

    def get(self, name, default=None):
        """The last value given; for a flag, how often it was given."""
        values = self.values.get(name)
        if values is None:
            return default
        if values[-1] is None:
            return len(values)
        return values[-1]

    def count(self, name):
        return len(self.values.get(name, ()))

    def all(self, name):
        """Every value given, in order."""
        return self.values.get(name, [])


def _option_lines(opt):
    left = f"  -{opt.key}, " if opt.key else "      "
    left += f"--{opt.name}"
    if opt.arg:
        left += f"={opt.arg}"
    lines = textwrap.wrap(opt.usage, WIDTH - COLUMN, break_on_hyphens=False) or [""]
    if len(left) >= COLUMN:
        out = [left]
    else:
        out = [f"{left:<{COLUMN}}{lines.pop(0)}"]
    out += [" " * COLUMN + line for line in lines]
    return "\n".join(line.rstrip() for line in out) + "\n"


class Parser:
    """Options of one C-style command.

    Args:
        prog: what messages begin with (``flux-job wait-event``).
        synopsis: what follows the name in the usage line.
        doc: the line under it.
        opts: list of :class:`Opt`, in the order of the usage text.
        args: how many arguments there have to be, (least, most or None) or a number.
    """

    def __init__(self, prog, synopsis="[OPTIONS]", doc="", opts=(), args=(0, None)):
        self.least, self.most = (args, args) if isinstance(args, int) else args
        self.prog = prog
        self.synopsis = synopsis
        self.doc = doc
        self.opts = [Opt("help", "h", usage="Display this message."), *opts]

    def usage(self):
        text = f"Usage: {self.prog} {self.synopsis}\n"
        if self.doc:
            text += self.doc + "\n"
        return text + "".join(_option_lines(o) for o in self.opts if not o.hidden)

    def _error(self, text):
        return UsageError(f"{self.prog}: {text}\nTry `{self.prog} --help' for more information.\n")

    def _find_long(self, name):
        exact = [o for o in self.opts if o.name == name]
        if exact:
            return exact[0]
        near = [o for o in self.opts if o.name.startswith(name)]
        if len(near) == 1:
            return near[0]
        if near:
            names = " ".join(f"'--{o.name}'" for o in near)
            raise self._error(f"option '--{name}' is ambiguous; possibilities: {names}")
        raise self._error(f"unrecognized option '--{name}'")

    def _store(self, result, opt, value):
        if opt.name == "help":
            sys.stdout.write(self.usage())
            raise UsageError("", code=0)
        if opt.kind == "int" and value is not None:
            try:
                value = int(value, 0)
            except ValueError:
                name = self.prog.rpartition(" ")[2]
                text = f"{self.prog}: {name}: Option '{opt.name}' requires an integer argument\n"
                raise UsageError(text) from None
        result.values.setdefault(opt.name, []).append(value)

    def parse(self, argv):
        """Parse; raises :class:`UsageError`."""
        result = Options(self)
        words = list(argv)
        pos = 0
        while pos < len(words):
            word = words[pos]
            pos += 1
            if word == "--":
                result.args += words[pos:]
                break
            if word.startswith("--"):
                name, equals, value = word[2:].partition("=")
                opt = self._find_long(name)
                if not opt.arg:
                    if equals:
                        raise self._error(f"option '--{opt.name}' doesn't allow an argument")
                    value = None
                elif not equals:
                    value = None
                    if not opt.optional:
                        if pos == len(words):
                            raise self._error(f"option '--{opt.name}' requires an argument")
                        value = words[pos]
                        pos += 1
                self._store(result, opt, value)
            elif word.startswith("-") and len(word) > 1:
                pos = self._short(result, word[1:], words, pos)
            else:
                # the first argument that is no option ends them, whatever follows
                result.args += words[pos - 1 :]
                break
        count = len(result.args)
        if count < self.least or (self.most is not None and count > self.most):
            raise result.fail_usage()
        return result

    def _short(self, result, letters, words, pos):
        while letters:
            letter, letters = letters[0], letters[1:]
            opt = next((o for o in self.opts if o.key == letter), None)
            if opt is None:
                raise self._error(f"unrecognized option '-{letter}'")
            value = None
            if opt.arg:
                if letters:
                    value, letters = letters, ""
                elif not opt.optional:
                    if pos == len(words):
                        raise self._error(f"option '-{letter}' requires an argument")
                    value = words[pos]
                    pos += 1
            self._store(result, opt, value)
        return pos


def command(prog, synopsis="[OPTIONS]", doc="", opts=(), args=(0, None)):
    """Make a function of `Options` a command, a function of ``argv``; arguments as for `Parser`."""

    def make(function):
        @functools.wraps(function)
        def run(argv):
            return function(Parser(prog, synopsis, doc, opts, args).parse(argv))

        run.name, run.doc = prog.rpartition(" ")[2], doc
        return run

    return make


class Group:
    """A command with subcommands, itself a function of ``argv``.

    Args:
        prog: what messages begin with.
        doc: the line under the usage line.
        commands: list of what `command` made.
        more: {name: (function of argv, what help says of it)}.
    """

    def __init__(self, prog, doc, commands=(), more=()):
        self.prog = prog
        self.doc = doc
        self.commands = {one.name: (one, one.doc) for one in commands}
        self.commands.update(more)

    def usage(self):
        text = f"Usage: {self.prog} [OPTIONS] COMMAND ARGS\n"
        if self.doc:
            text += self.doc + "\n"
        text += "  -h, --help             Display this message.\n\n"
        text += f"Common commands from {self.prog}:\n"
        for name, (_, doc) in self.commands.items():
            if doc:
                text += f"   {name:<15} {doc}\n"
        return text

    def __call__(self, argv):
        if not argv:
            raise UsageError(self.usage())
        name = argv[0]
        if name in ("-h", "--help"):
            sys.stdout.write(self.usage())
            return 0
        if name.startswith("-"):
            raise UsageError(
                f"{self.prog}: unrecognized option '{name}'\n"
                f"Try `{self.prog} --help' for more information.\n"
            )
        if name not in self.commands:
            raise UsageError(f"{self.prog}: Unknown subcommand: {name}\n" + self.usage())
        return self.commands[name][0](argv[1:])
