"""``flux overlay``: which broker ranks there are."""

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, error_text
from flux_embedded.cmd.lib.optparse import Group, Parser
from flux_embedded.formats import hostlist, idset


def _rank(client, word):
    if word.isdigit():
        return int(word)
    hosts = hostlist.decode(client.rpc("attr.get", {"name": "hostlist"})["value"])
    if word not in hosts:
        raise CommandError(f"{word}: no such host or rank")
    return hosts.index(word)


def disconnect(argv):
    parser = Parser(
        "flux-overlay disconnect",
        "[OPTIONS] TARGET",
        "Disconnect a subtree rooted at TARGET (hostname or rank)",
    )
    opts = parser.parse(argv)
    if len(opts.args) != 1:
        raise parser.fail_usage()
    client = connect()
    try:
        client.rpc("overlay.disconnect", {"rank": _rank(client, opts.args[0])})
    except OSError as exc:
        raise CommandError(f"disconnect: {error_text(exc)}") from None
    return 0


def status(argv):
    parser = Parser("flux-overlay status", "[OPTIONS]", "Display overlay subtree health status")
    if parser.parse(argv).args:
        raise parser.fail_usage()
    client = connect()
    hosts = hostlist.decode(client.rpc("attr.get", {"name": "hostlist"})["value"])
    online = next(iter(client.stream("overlay.monitor", {})))["online"]
    there = set(idset.members(idset.decode(online)))
    for rank, host in enumerate(hosts):
        state = "full" if rank in there else "offline"
        print(f"{rank} {host}: {state}")
    return 0


def main(argv):
    commands = {
        "status": (status, "Display overlay subtree health status"),
        "disconnect": (disconnect, "Disconnect a subtree rooted at TARGET (hostname or rank)"),
    }
    return Group("flux-overlay", "", commands).run(argv)
