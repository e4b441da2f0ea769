"""``flux kvs namespace``."""

import errno

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, strerror
from flux_embedded.cmd.lib.optparse import Group, Opt, Parser


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


def create(argv):
    parser = Parser(
        "flux-kvs namespace create",
        "[-o owner] name [name...]",
        "Create a KVS namespace",
        [Opt("owner", "o", "UID", "Specify alternate namespace owner via userid", kind="int")],
    )
    opts = parser.parse(argv)
    if not opts.args:
        raise parser.fail_usage()
    return _each(opts.args, "create", {"owner": opts.get("owner")} if "owner" in opts else None)


def remove(argv):
    parser = Parser("flux-kvs namespace remove", "name [name...]", "Remove a KVS namespace")
    opts = parser.parse(argv)
    if not opts.args:
        raise parser.fail_usage()
    # one that is not there is as good as removed
    return _each(opts.args, "remove", missing=True)


def list_namespaces(argv):
    print(f"{'NAMESPACE':<36} {'OWNER':>10} {'FLAGS':>10}")
    for entry in connect().rpc("kvs.namespace-list")["namespaces"]:
        print(f"{entry['namespace']:<36} {entry['owner']:>10} 0x{0:08X}")
    return 0


def main(argv):
    commands = {
        "create": (create, "Create a KVS namespace"),
        "remove": (remove, "Remove a KVS namespace"),
        "list": (list_namespaces, "List namespaces on local rank"),
    }
    return Group("flux-kvs namespace", "", commands).run(argv)
