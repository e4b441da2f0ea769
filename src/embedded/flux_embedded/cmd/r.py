# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux R encode``: make a resource set."""

import json
import socket

from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser
from flux_engine.formats import hostlist, idset
from flux_engine.formats.rset import RSet, kinds


def encode(args):
    hosts = None if args.hosts is None else hostlist.decode(args.hosts)
    if args.ranks is not None:
        ranks = idset.ids(args.ranks)
    else:
        ranks = list(range(len(hosts))) if hosts else [0]
    if hosts is None:
        hosts = [socket.gethostname()] * len(ranks)
    if len(hosts) != len(ranks):
        text = f"hostname count in '{args.hosts}' does not match nranks ({len(ranks)})"
        raise CommandError(text)
    xml = None
    if args.hwloc_xml:
        with open(args.hwloc_xml, encoding="utf-8", errors="surrogateescape") as file:
            xml = file.read()
        have = _children(xml)
    else:
        cores = args.cores or ("" if args.gpus else "0")
        have = {"core": idset.decode(cores), "gpu": idset.decode(args.gpus)}
    rset = RSet.of(dict.fromkeys(ranks, kinds(have)), dict(zip(ranks, hosts)))
    for text in args.property or ():
        name, colon, some = text.partition(":")
        rset.set_property(name, set(idset.ids(some)) if colon else None)
    R = rset.to_dict()
    if xml is not None:
        from flux.resource.TreePool import amend

        R = amend(R, xml)
    print(json.dumps(R, ensure_ascii=False))


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
    one.add_argument(
        "--hwloc-xml", metavar="FILE", help="cores, GPUs and topology of a file of hwloc XML"
    )
    one.add_argument("-r", "--ranks", metavar="IDSET", help="default: 0, or one for each host")
    one.add_argument("-c", "--cores", metavar="IDSET", help="of each rank; default: 0")
    one.add_argument("-g", "--gpus", metavar="IDSET", default="", help="of each rank")
    one.add_argument("-H", "--hosts", metavar="HOSTLIST", help="default: this host, for each rank")
    one.add_argument(
        "-p", "--property", metavar="NAME[:RANKS]", action="append", help="give ranks a property"
    )
    return parser.run(argv)
