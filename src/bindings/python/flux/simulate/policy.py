# SPDX-License-Identifier: LGPL-3.0-or-later
"""The policies of a call: a module and its arguments, with lists of values taken apart."""

import itertools
import os
import shlex

from flux.simulate.workload.record import OptionError
from flux_embedded import paths
from flux_embedded.broker import modpath


class Policy:
    """One scheduler to be tried.

    Attributes:
        name (str): module and arguments, for titles
        slug (str): the same as a directory's name
        path (str): the module's file
        args (list of str): its arguments
    """

    def __init__(self, module, path, args):
        self.path = path
        self.args = list(args)
        self.name = " ".join([module, *self.args])
        text = self.name.replace("=", "-")
        self.slug = "".join(c if c.isalnum() or c in "-_." else "_" for c in text).strip("._")

    def __repr__(self):
        return f"Policy({self.name!r})"


def parse(texts):
    """The policies that ``--scheduler`` values stand for.

    A value is a module's name or file and its arguments; ``name=a,b,c`` stands for three policies. A
    backslash keeps a comma.

    Raises:
        OptionError: a module is not there, or two policies are the same
    """
    found = []
    for text in texts:
        words = shlex.split(text.replace("\\,", "\0"))
        if not words:
            raise OptionError("--scheduler: expected the name or file of a module")
        try:
            module = modpath.find(words[0], _directories(), ())
        except OSError as exc:
            raise OptionError(f"--scheduler={words[0]}: {exc.strerror}") from None
        choices = [_choices(word) for word in words[1:]]
        for args in itertools.product(*choices):
            found.append(Policy(module.name, module.path, args))
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


def _directories():
    return modpath.search_path(os.environ, paths.module_dirs())
