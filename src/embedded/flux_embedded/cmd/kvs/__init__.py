"""``flux kvs``: the instance's key-value store."""

from flux_embedded.cmd.lib.optparse import Group


def main(argv):
    from flux_embedded.cmd.kvs import commands, eventlog, namespace

    table = {
        "namespace": (namespace.main, "Perform KVS namespace operations"),
        "get": (commands.get, "Get value stored under key"),
        "put": (commands.put, "Store value under key"),
        "ls": (commands.ls, "List directory"),
        "dir": (commands.dir_, "Display all keys under directory"),
        "unlink": (commands.unlink, "Remove key"),
        "link": (commands.link, "Create a new name for target"),
        "readlink": (commands.readlink, "Retrieve the key a link refers to"),
        "mkdir": (commands.mkdir, "Create a directory"),
        "copy": (commands.copy, "Copy source key to destination key"),
        "move": (commands.move, "Move source key to destination key"),
        "dropcache": (lambda argv: 0, "Tell KVS to drop its cache (there is none here)"),
        "version": (commands.version, "Display curent KVS version"),
        "wait": (commands.wait, "Block until the KVS reaches version"),
        "getroot": (commands.getroot, "Get KVS root"),
        "eventlog": (eventlog.main, "Manipulate a KVS eventlog"),
    }
    return Group("flux-kvs", "", table).run(argv)
