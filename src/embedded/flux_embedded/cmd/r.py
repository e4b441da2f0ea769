# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux R encode``: make a resource set."""

import json
import socket

from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser
from flux_engine.formats import hostlist, idset
from flux_engine.formats.rset import RSet


def encode(args):
    hosts = hostlist.decode(args.hosts or "")
    ranks = args.ranks or idset.encode([0, len(hosts) or 1])
    hosts = hosts or [socket.gethostname()] * len(idset.ids(ranks))
    xml = None
    if args.hwloc_xml:
        with open(args.hwloc_xml, encoding="utf-8", errors="surrogateescape") as file:
            xml = file.read()
        children = _children(xml)
    else:
        children = {"core": args.cores or ("" if args.gpus else "0"), "gpu": args.gpus}
    properties = {}
    for text in args.property or ():
        name, _, some = text.partition(":")
        properties[name] = some or ranks
    execution = {
        "R_lite": [{"rank": ranks, "children": children}],
        "nodelist": [hostlist.encode(hosts)],
        "properties": properties,
    }
    R = RSet({"version": 1, "execution": execution}).to_dict()
    if xml is not None:
        from flux.resource.TreePool import amend

        R = amend(R, xml)
    print(json.dumps(R, ensure_ascii=False))


def _children(xml):
    """The cores and GPUs of a node, {type: idset}."""
    try:
        from flux.resource.hwloc.amend import topology_from_xml

        _, ncores, ngpus = topology_from_xml(xml)
    except (ImportError, RuntimeError) as exc:
        raise CommandError(f"encode: {exc}") from None
    return {"core": idset.encode([0, ncores]), "gpu": idset.encode([0, ngpus] if ngpus else [])}


def main(argv):
    parser = Parser("flux-R", status=1)
    one = parser.command("encode", encode, "print R made of these options")
    one.option("--hwloc-xml=FILE", "cores, GPUs and topology of a file of hwloc XML")
    one.option("-r --ranks=IDSET", "default: 0, or one for each host")
    one.option("-c --cores=IDSET", "of each rank; default: 0")
    one.option("-g --gpus=IDSET", "of each rank", default="")
    one.option("-H --hosts=HOSTLIST", "default: this host, for each rank")
    one.option("-p --property=NAME[:RANKS]", "give ranks a property", action="append")
    return parser.run(argv)
