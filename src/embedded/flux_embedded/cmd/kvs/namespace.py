"""``flux kvs namespace``."""

import errno

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, strerror
from flux_embedded.cmd.lib.optparse import Group, Opt, command


def _each(names, method, extra=None, missing=False):
    client = connect()
    for name in names:
        try:
            client.rpc(f"kvs.namespace-{method}", {"namespace": name, **(extra or {})})
        except OSError as exc:
            if missing and exc.errno == errno.ENOENT:
                continue
            raise CommandError(f"{name}: {strerror(exc)}") from None
    return 0


@command(
    "flux-kvs namespace create",
    "[-o owner] name [name...]",
    "Create a KVS namespace",
    [Opt("owner", "o", "UID", "Specify alternate namespace owner via userid", kind="int")],
    args=(1, None),
)
def create(opts):
    return _each(opts.args, "create", {"owner": opts.get("owner")} if "owner" in opts else None)


@command("flux-kvs namespace remove", "name [name...]", "Remove a KVS namespace", args=(1, None))
def remove(opts):
    # one that is not there is as good as removed
    return _each(opts.args, "remove", missing=True)


@command("flux-kvs namespace list", "", "List namespaces on local rank", args=0)
def list_namespaces(opts):
    print(f"{'NAMESPACE':<36} {'OWNER':>10} {'FLAGS':>10}")
    for entry in connect().rpc("kvs.namespace-list")["namespaces"]:
        print(f"{entry['namespace']:<36} {entry['owner']:>10} 0x{0:08X}")
    return 0


main = Group("flux-kvs namespace", "", [create, remove, list_namespaces])
