"""``flux overlay``: which broker ranks there are."""

from flux_embedded.cmd.lib.client import connect, rank_of
from flux_embedded.cmd.lib.errors import CommandError, error_text
from flux_embedded.cmd.lib.optparse import Group, command
from flux_embedded.formats import hostlist, idset


@command(
    "flux-overlay disconnect",
    "[OPTIONS] TARGET",
    "Disconnect a subtree rooted at TARGET (hostname or rank)",
    args=1,
)
def disconnect(opts):
    client = connect()
    rank = rank_of(client, opts.args[0])
    if rank is None:
        raise CommandError(f"{opts.args[0]}: no such host or rank")
    try:
        client.rpc("overlay.disconnect", {"rank": rank})
    except OSError as exc:
        raise CommandError(f"disconnect: {error_text(exc)}") from None
    return 0


@command("flux-overlay status", "[OPTIONS]", "Display overlay subtree health status", args=0)
def status(opts):
    client = connect()
    hosts = hostlist.decode(client.rpc("attr.get", {"name": "hostlist"})["value"])
    online = next(iter(client.stream("overlay.monitor", {})))["online"]
    there = set(idset.ids(online))
    for rank, host in enumerate(hosts):
        # all ranks are children of rank 0, which is degraded when one is gone
        if rank == 0:
            branch, state = "", "full" if len(there) == len(hosts) else "degraded"
        else:
            branch = "└─ " if rank == len(hosts) - 1 else "├─ "
            state = "full" if rank in there else "lost"
        print(f"{branch}{rank} {host}: {state}")


main = Group("flux-overlay", "", [status, disconnect])
