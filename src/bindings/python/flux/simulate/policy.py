# SPDX-License-Identifier: LGPL-3.0-or-later
"""Policies (a module and its arguments, lists of values expanded) and jobtap plugins, as given in a
call."""

import hashlib
import itertools
import json
import linecache
import os
import shlex
import types

from flux.simulate.workload.record import OptionError
from flux.simulate.workload.text import digest
from flux_engine import paths
from flux_engine.modules import pymodule


class Policy:
    """One scheduler to run.

    Args:
        is_file (bool): whether the module was given as a file, which no broker finds by its name

    Attributes:
        name (str): module and arguments, for titles
        slug (str): the name in a form fit for a directory
        path (str): the module's file, or a notebook's name of the cell of a class
        args (list of str): its arguments
        entry (type or None): the class, if it is not from a module
    """

    def __init__(self, module, path, args, entry=None, is_file=False):
        self.path = path
        self._word = path if is_file else module
        self.entry = entry
        self.args = list(args)
        self.name = " ".join([module, *self.args])
        text = self.name.replace("=", "-")
        self.slug = "".join(c if c.isalnum() or c in "-_." else "_" for c in text).strip("._")

    def load_words(self):
        """Return the module and its arguments as a broker takes them, whose working directory is another one."""
        words = [self._word]
        for arg in self.args:
            path = file_of(arg)
            words.append(arg if path is None else arg.replace(path, os.path.abspath(path), 1))
        return words

    def digest(self):
        """Return the SHA-256 of the module's file, or of the notebook cell, in hexadecimal."""
        if os.path.isfile(self.path):
            return digest(self.path)
        return hashlib.sha256("".join(linecache.getlines(self.path)).encode()).hexdigest()


def file_of(arg):
    """Return the file in an argument ``NAME=FILE`` or ``NAME=FILE:FUNCTION``, or None."""
    text = arg.partition("=")[2]
    return next((path for path in (text, text.rpartition(":")[0]) if os.path.isfile(path)), None)


def of_class(entry):
    """Return the policy for a class of this program. Raises OptionError if the class is not a
    scheduler."""
    from flux.scheduler import Scheduler

    if not issubclass(entry, Scheduler):
        text = f"{entry.__name__}: expected a class derived from flux.scheduler.Scheduler"
        raise OptionError(text)
    functions = (one for one in vars(entry).values() if isinstance(one, types.FunctionType))
    path = next((one.__code__.co_filename for one in functions), "")
    return Policy(entry.__name__, path, [], entry)


def listed(given):
    """Return one policy, or a list of them, as a list. Raises OptionError if there is none."""
    is_one = isinstance(given, (str, type, os.PathLike)) or not hasattr(given or (), "__iter__")
    found = [given] if is_one else list(given or ())
    if not found:
        raise OptionError("no scheduler to run")
    return found


def parse(texts):
    """Return the policies of ``--scheduler`` values: a module's name or file and its arguments, where ``name=a,b,c`` makes
    three and a backslash keeps a comma; a path of a module; or a class. Raises OptionError."""
    found = []
    for text in texts:
        if isinstance(text, type):
            found.append(of_class(text))
            continue
        if isinstance(text, os.PathLike):
            text = shlex.quote(os.path.abspath(text))
        if not isinstance(text, str):
            kind = type(text).__name__
            raise OptionError(f"a scheduler of type {kind}: expected a name, a file or a class")
        words = shlex.split(text.replace("\\,", "\0"))
        if not words:
            raise OptionError("--scheduler: expected the name or file of a module")
        try:
            where = pymodule.search_path(os.environ, paths.module_dirs())
            module = pymodule.find(words[0], where, ())
        except OSError as exc:
            here = f" (a file here: ./{words[0]})" if os.path.isfile(words[0]) else ""
            raise OptionError(f"--scheduler={words[0]}: {exc.strerror}{here}") from None
        choices = [_choices(word) for word in words[1:]]
        for args in itertools.product(*choices):
            found.append(Policy(module.name, module.path, args, is_file="/" in words[0]))
    for policy in found:
        if sum(other.slug == policy.slug for other in found) > 1:
            raise OptionError(f"--scheduler: {policy.name} is there twice")
    return found


def _choices(word):
    key, equals, value = word.partition("=")
    values = value.split(",") if equals else []
    if len(values) < 2:
        return [word.replace("\0", ",")]
    return [f"{key}={one}".replace("\0", ",") for one in values]


def plugin_of(text):
    """Return (file, arguments) of ``FILE [KEY=VALUE ...]``; values are parsed as JSON if possible. Raises OptionError.

    A name without a slash that is not a file here is left to the job manager's search path.
    """
    words = shlex.split(text)
    if not words:
        raise OptionError("jobtap: expected a file")
    conf = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise OptionError(f"jobtap {text!r}: {word!r}: expected KEY=VALUE")
        try:
            conf[key] = json.loads(value)
        except ValueError:
            conf[key] = value
    name = words[0]
    if "/" not in name and not os.path.isfile(name):
        return name, conf
    return os.path.abspath(name), conf
