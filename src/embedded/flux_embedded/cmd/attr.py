"""``flux getattr``, ``setattr`` and ``lsattr``."""

import errno
import os

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text
from flux_embedded.cmd.lib.optparse import Opt, Parser


def getattr_(argv):
    parser = Parser("flux-getattr", "name", "Get broker attribute")
    args = parser.parse(argv).args
    if len(args) != 1:
        raise parser.fail_usage()
    print(get(connect(), args[0]))


def setattr_(argv):
    parser = Parser(
        "flux-setattr",
        "name value",
        "Set broker attribute",
        [Opt("force", "f", usage="Set the attribute even if unknown")],
    )
    args = parser.parse(argv).args
    if len(args) != 2:
        raise parser.fail_usage()
    try:
        connect().rpc("attr.set", {"name": args[0], "value": args[1]})
    except OSError as exc:
        raise CommandError(f"{args[0]}: {error_text(exc)}") from None


def get(client, name):
    """An attribute's value; the rank is the one that ``flux exec`` plays."""
    if name == "rank" and "FLUX_EMBEDDED_RANK" in os.environ:
        return os.environ["FLUX_EMBEDDED_RANK"]
    try:
        return client.rpc("attr.get", {"name": name})["value"]
    except OSError as exc:
        reason = "No such file or directory" if exc.errno == errno.ENOENT else error_text(exc)
        raise CommandError(f"{name}: {reason}") from None


def lsattr(argv):
    parser = Parser(
        "flux-lsattr",
        "[OPTIONS]",
        "List broker attributes",
        [Opt("values", "v", usage="List values with attributes")],
    )
    opts = parser.parse(argv)
    if opts.args:
        raise parser.fail_usage()
    answer = connect().rpc("attr.list")
    for name in sorted(answer["names"]):
        if opts.get("values"):
            print(f"{name:<40}{answer['attrs'].get(name, '-')}")
        else:
            print(name)
