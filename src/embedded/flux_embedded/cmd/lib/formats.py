"""Named output formats."""

import os

from flux_embedded.cmd.lib.errors import CommandError


def choose(text, named, variable):
    """The format string for ``-o``.

    Args:
        text: a format string, the name of a format, or None for the default.
        named: name -> (description, format string); ``default`` among them.
        variable: environment variable that may name another default.

    Returns:
        (format string, True if it was the user's own), or None after ``help``.
    """
    if text is None:
        text = os.environ.get(variable) or "default"
    if text == "help":
        print("Configured output formats:\n")
        for name, (doc, _) in named.items():
            print(f"  {name:<12} {doc}")
        return None
    if "{" in text:
        return text, True
    if text not in named:
        raise CommandError(f"No such format '{text}': known formats are {', '.join(named)}")
    return named[text][1], False
