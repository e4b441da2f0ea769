# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux R encode``: make a resource set."""

import json
import socket

from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser
from flux_engine.formats import hostlist, idset
from flux_engine.formats.rset import RSet, kinds


def _members(text, what):
    try:
        return set(idset.ids(text))
    except ValueError:
        raise CommandError(f"{what}: invalid idset '{text}'") from None


def _hosts(text):
    try:
        return hostlist.decode(text)
    except ValueError:
        raise CommandError(f"Invalid hostlist '{text}'") from None


def _add_properties(rset, texts):
    for text in texts or ():
        name, colon, ranks = text.partition(":")
        try:
            rset.set_property(name, set(idset.ids(ranks)) if colon else None)
        except ValueError as exc:
            raise CommandError(f"failed to assign properties: {exc}") from None


def encode(args):
    hosts = None if args.hosts is None else _hosts(args.hosts)
    if args.ranks is not None:
        ranks = sorted(_members(args.ranks, "ranks"))
    else:
        ranks = list(range(len(hosts))) if hosts else [0]
    if hosts is None:
        hosts = [socket.gethostname()] * len(ranks)
    if len(hosts) != len(ranks):
        text = f"hostname count in '{args.hosts}' does not match nranks ({len(ranks)})"
        raise CommandError(text)
    xml = args.hwloc_xml or args.xml
    if args.local or xml:
        xml = _read(xml) if xml else _local_xml()
        have = _children(xml)
    else:
        cores = args.cores or ("" if args.gpus else "0")
        have = {
            "core": idset.from_ids(_members(cores, "cores")),
            "gpu": idset.from_ids(_members(args.gpus, "gpus")),
        }
    rset = RSet.of(dict.fromkeys(ranks, kinds(have)), dict(zip(ranks, hosts)))
    _add_properties(rset, args.property)
    if args.hwloc_xml:
        from flux.resource.TreePool import amend

        print(json.dumps(amend(rset.to_dict(), xml), ensure_ascii=False))
    else:
        print(rset.encode())


def _read(path):
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _local_xml():
    """The XML of this machine, as ``lstopo`` writes it."""
    import subprocess

    command = ["lstopo-no-graphics", "--of", "xml"]
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        text = "encode --local needs lstopo-no-graphics (package hwloc-nox): save its XML and use --hwloc-xml"
        raise CommandError(text) from None


def _children(xml):
    """The cores and GPUs of a node, {type: bounds}."""
    try:
        from flux.resource.hwloc.amend import topology_from_xml

        _, ncores, ngpus = topology_from_xml(xml)
    except (ImportError, RuntimeError) as exc:
        raise CommandError(f"encode: {exc}") from None
    return {"core": [0, ncores], "gpu": [0, ngpus] if ngpus else []}


def main(argv):
    parser = Parser("flux-R", status=1)
    one = parser.command("encode", encode, "print R made of these options")
    one.flag("-l", "--local", text="the cores and GPUs of this machine")
    one.add_argument("-x", "--xml", metavar="FILE", help="those in a file of hwloc XML")
    one.add_argument("--hwloc-xml", metavar="FILE", help="the same, with the topology for TreePool")
    one.add_argument("-r", "--ranks", metavar="IDSET", help="default: 0, or one for each host")
    one.add_argument("-c", "--cores", metavar="IDSET", help="of each rank; default: 0")
    one.add_argument("-g", "--gpus", metavar="IDSET", default="", help="of each rank")
    one.add_argument("-H", "--hosts", metavar="HOSTLIST", help="default: this host, for each rank")
    one.add_argument(
        "-p", "--property", metavar="NAME[:RANKS]", action="append", help="give ranks a property"
    )
    return parser.run(argv)
