"""Named output formats."""

import os

from flux_embedded.cmd.lib.errors import CommandError


def choose(text, named, command, table=""):
    """The format string for ``-o``.

    Args:
        text: a format string, the name of a format, ``help``, ``get-config=NAME``, or None for the default.
        named: name -> (description, format string); ``default`` among them.
        command: the command's name, ``jobs``.
        table: its subcommand, where that has formats of its own.

    Returns:
        The format string; None after ``help`` and ``get-config``.

    Raises:
        CommandError: there is no such format
    """
    if text is None:
        parts = ["FLUX", command, table, "FORMAT_DEFAULT"]
        text = os.environ.get("_".join(part.upper() for part in parts if part), "default")
    if text == "help":
        print(f"\nConfigured flux-{command} output formats:\n")
        for name, (doc, _) in named.items():
            print(f"  {name:<12} {doc}")
        return None
    show = text.startswith("get-config=")
    name = text[len("get-config=") :] if show else text
    if "{" in name:
        return name
    if name not in named:
        hint = "" if show else f" (Did you mean '{{{name}}}'?)"
        raise CommandError(f"--format: No such format {name}{hint}")
    doc, layout = named[name]
    if not show:
        return layout
    print(f"[{table}.formats.{name}]" if table else f"[formats.{name}]")
    print(f'description = "{doc}"\nformat = "{layout}"')
    return None
