"""``flux getattr``, ``setattr`` and ``lsattr``."""

import errno
import os

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text
from flux_embedded.cmd.lib.optparse import Opt, command

#: attributes that each rank has for itself, on another one than 0; None: its number
_OF_RANK = {"rank": None, "tbon.level": "1", "tbon.descendants": "0"}


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
    rank = os.environ.get("FLUX_EMBEDDED_RANK", "0")
    if rank != "0" and name in _OF_RANK:
        return _OF_RANK[name] or rank
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
    client = connect()
    names = sorted(client.rpc("attr.list")["names"])
    if opts.get("values"):
        asked = [(name, client.send("attr.get", {"name": name})) for name in names]
        names = [f"{name:<40}{future.get()['value']}" for name, future in asked]
    print(*names, sep="\n")
