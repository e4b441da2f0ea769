"""``flux overlay``: which broker ranks there are, all of them children of rank 0."""

from flux_embedded.cmd.lib.client import connect, rank_of
from flux_embedded.cmd.lib.errors import CommandError, error_text, warn
from flux_embedded.cmd.lib.optparse import Group, Opt, command
from flux_embedded.formats import fsd, hostlist

#: what became of a rank that `disconnect` took away
DISCONNECTED = "administrative disconnect"


def _hosts(client):
    return hostlist.decode(client.rpc("attr.get", {"name": "hostlist"})["value"])


def _rank(client, hosts, word):
    rank = rank_of(client, word)
    if rank is None or rank >= len(hosts):
        raise CommandError(f"{word}: no such host or rank")
    return rank


@command(
    "flux-overlay disconnect",
    "[OPTIONS] TARGET",
    "Disconnect a subtree rooted at TARGET (hostname or rank)",
    args=1,
)
def disconnect(opts):
    client = connect()
    hosts = _hosts(client)
    rank = _rank(client, hosts, opts.args[0])
    child = f"{hosts[rank]} (rank {rank})"
    warn(f"flux-overlay: asking {hosts[0]} (rank 0) to disconnect child {child}")
    try:
        client.rpc("overlay.disconnect", {"rank": rank})
    except OSError as exc:
        raise CommandError(f"disconnect: {error_text(exc)}") from None


@command("flux-overlay lookup", "[OPTIONS] TARGET", "translate between hostname and rank", args=1)
def lookup(opts):
    word = opts.args[0]
    client = connect()
    hosts = _hosts(client)
    if not word.isdigit():
        print(_rank(client, hosts, word))
    elif int(word) < len(hosts):
        print(hosts[int(word)])
    else:
        raise CommandError(f"rank {word} is not in host map")


@command("flux-overlay parentof", "[OPTIONS] RANK", "show the parent of RANK", args=1)
def parentof(opts):
    word = opts.args[0]
    if not word.isdigit() or int(word) >= len(_hosts(connect())):
        raise CommandError(f"{word} is not a valid rank in this instance")
    if word == "0":
        raise CommandError("rank 0 has no parent")
    print(0)


@command(
    "flux-overlay status",
    "[OPTIONS]",
    "Display overlay subtree health status",
    [
        Opt("rank", "r", "NODEID", "Check health of subtree rooted at NODEID", kind="int"),
        Opt("verbose", "v", usage="Show time since current state was entered"),
        Opt("timeout", "t", "FSD", "accepted for compatibility"),
        Opt("summary", None, usage="Show only the root subtree status."),
        Opt("down", None, usage="Show only the partial/degraded subtrees."),
        Opt("no-pretty", None, usage="Do not show overlay tree structure"),
        Opt("no-ghost", None, usage="accepted for compatibility"),
        Opt("color", "L", "WHEN", "accepted, no colors are used"),
    ],
    args=0,
)
def status(opts):
    client = connect()
    hosts = _hosts(client)
    root = client.rpc("overlay.health")
    rows = [root, *root["children"]]
    if "rank" in opts:
        rows = [row for row in rows if row["rank"] == opts.get("rank")]
        if not rows:
            raise CommandError(f"{opts.get('rank')}: No route to host")
    if opts.get("summary"):
        print(rows[0]["status"])
        return
    down = opts.get("down")
    rows = [row for row in rows if not (down and row["status"] == "full")]
    for row in rows:
        branch = ""
        if row["rank"] and "rank" not in opts and not opts.get("no-pretty"):
            branch = "└─ " if row is rows[-1] else "├─ "
        text = f"{branch}{row['rank']} {hosts[row['rank']]}: {row['status']}"
        if row["status"] == "lost":
            text += f" {DISCONNECTED}"
        if opts.get("verbose"):
            text += f" for {fsd.encode(row['duration'])}"
        print(text)


@command("flux-overlay errors", "[OPTIONS]", "Summarize overlay errors", args=0)
def errors(opts):
    client = connect()
    hosts = _hosts(client)
    children = client.rpc("overlay.health")["children"]
    lost = [hosts[row["rank"]] for row in children if row["status"] == "lost"]
    if lost:
        print(f"{hostlist.encode(lost)}: {DISCONNECTED}")


main = Group("flux-overlay", "", [status, errors, lookup, parentof, disconnect])
