# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux R``: make and work on resource sets."""

import json
import socket
import sys

from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.options import Parser
from flux_embedded.formats import hostlist, idset
from flux_embedded.formats.rset import RSet, kinds


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


def _stdin_sets():
    """The sets of resources on standard input, at least one."""
    decoder = json.JSONDecoder()
    text = sys.stdin.read().strip()
    found = []
    try:
        while text:
            obj, end = decoder.raw_decode(text)
            found.append(RSet(obj))
            text = text[end:].lstrip()
    except ValueError as exc:
        raise CommandError(f"Failed to decode R on stdin: {exc}") from None
    if not found:
        raise CommandError("expected R on stdin")
    return found


def _add_properties(rset, texts):
    for text in texts or ():
        name, colon, ranks = text.partition(":")
        try:
            rset.set_property(name, set(idset.ids(ranks)) if colon else None)
        except ValueError as exc:
            raise CommandError(f"failed to assign properties: {exc}") from None


# -- encode ------------------------------------------------------------------------------------------


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


# -- decode ------------------------------------------------------------------------------------------


def _with_properties(rset, names):
    """The ranks that have all properties; ``^NAME``: have it not."""
    found = set(rset.have)
    for name in names:
        bad = next((letter for letter in name[1:] if letter in "!&'\"^`|()"), None)
        if bad:
            text = f"invalid character '{bad}' in property \"{name}\""
            raise CommandError(f"Invalid property constraint: {text}: Invalid argument")
        members = set(rset.properties.get(name.lstrip("^"), ()))
        found = found - members if name.startswith("^") else found & members
    return found


def decode(args):
    rset = _stdin_sets()[0]
    if args.properties is not None:
        rset = rset.select(_with_properties(rset, args.properties.split(",")))
    if args.include is not None:
        rset = rset.select(_members(args.include, "include"))
    if args.exclude is not None:
        rset = rset.select(set(rset.have) - _members(args.exclude, "exclude"))
    if args.short:
        print(rset.short())
    elif args.nodelist:
        print(rset.encode_hosts())
    elif args.ranks:
        print(rset.encode_ranks())
    elif args.count:
        print(rset.count(args.count))
    else:
        print(rset.encode())


# -- the rest ----------------------------------------------------------------------------------------


def append(args):
    result, *others = _stdin_sets()
    for other in others:
        if result.overlaps(other):
            text = f"R objects '{result.short()}' and '{other.short()}' overlap"
            raise CommandError(text)
        result = result.union(other)
    print(result.encode())


def set_property(args):
    rset = _stdin_sets()[0]
    _add_properties(rset, args.properties)
    print(rset.encode())


def parse_config(args):
    """R from the ``[resource]`` table of a TOML file or directory."""
    from flux_embedded.broker import config
    from flux_embedded.services.resource import sources

    result = sources.from_config(config.load_path(args.path))
    if result is None:
        raise CommandError(f"{args.path}: no resources are configured")
    print(json.dumps(result, ensure_ascii=False))


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
    one = parser.command("decode", decode, "print what is asked of the R on standard input")
    one.flag("-s", "--short", text="all of it, in short")
    one.flag("-l", "--nodelist", text="the hosts")
    one.flag("-r", "--ranks", text="the ranks")
    one.add_argument(
        "-c", "--count", metavar="TYPE", help="how many of core, gpu or node there are"
    )
    one.add_argument("-i", "--include", metavar="RANKS", help="these ranks only")
    one.add_argument("-x", "--exclude", metavar="RANKS", help="without these ranks")
    one.add_argument("-p", "--properties", metavar="NAME,...", help="ranks with these properties")
    parser.command("append", append, "put several R together")
    one = parser.command("set-property", set_property, "give ranks properties")
    one.add_argument("properties", metavar="NAME[:RANKS]", nargs="+")
    one = parser.command("parse-config", parse_config, "print the R that a configuration describes")
    one.add_argument("path", metavar="PATH")
    return parser.run(argv)
