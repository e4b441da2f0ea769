"""``flux getattr``, ``setattr`` and ``lsattr``."""

import errno
import os

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text
from flux_embedded.cmd.lib.optparse import Opt, command


@command("flux-getattr", "name", "Get broker attribute", args=1)
def getattr_(opts):
    print(get(connect(), opts.args[0]))


@command(
    "flux-setattr",
    "name value",
    "Set broker attribute",
    [Opt("force", "f", usage="Set the attribute even if unknown")],
    args=2,
)
def setattr_(opts):
    name, value = opts.args
    try:
        connect().rpc("attr.set", {"name": name, "value": value})
    except OSError as exc:
        raise CommandError(f"{name}: {error_text(exc)}") from None


def get(client, name):
    """An attribute's value; the rank is the one that ``flux exec`` plays."""
    if name == "rank" and "FLUX_EMBEDDED_RANK" in os.environ:
        return os.environ["FLUX_EMBEDDED_RANK"]
    try:
        return client.rpc("attr.get", {"name": name})["value"]
    except OSError as exc:
        reason = "No such file or directory" if exc.errno == errno.ENOENT else error_text(exc)
        raise CommandError(f"{name}: {reason}") from None


@command(
    "flux-lsattr",
    "[OPTIONS]",
    "List broker attributes",
    [Opt("values", "v", usage="List values with attributes")],
    args=0,
)
def lsattr(opts):
    answer = connect().rpc("attr.list")
    for name in sorted(answer["names"]):
        if opts.get("values"):
            print(f"{name:<40}{answer['attrs'].get(name, '-')}")
        else:
            print(name)
