"""``flux R``: make and work on resource sets."""

import json
import socket
import sys

from flux_embedded.cmd.lib.errors import CommandError, UsageError
from flux_embedded.cmd.lib.optparse import Opt, command
from flux_embedded.formats import hostlist, idset
from flux_embedded.formats.rset import RSet, kinds, short_kinds

USAGE = """\
Usage: flux-R encode [OPTIONS]...
   or: flux-R append 
   or: flux-R diff 
   or: flux-R intersect 
   or: flux-R remap 
   or: flux-R rerank HOSTLIST
   or: flux-R decode [OPTIONS]...
   or: flux-R verify 
   or: flux-R set-property PROPERTY:RANKS [PROPERTY:RANKS]...
   or: flux-R parse-config PATH
Read, generate, and process RFC 20 Resource Set objects.
Options:
  -h, --help             Display this message.
"""  # noqa: W291  (as the host prints it)


def _ids(name, text):
    try:
        return idset.decode(text)
    except ValueError:
        raise CommandError(f"{name}: invalid idset '{text}'") from None


def _stdin_sets(minimum=1, command=""):
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
    if len(found) < minimum:
        raise CommandError(f"{command}: expected R on stdin" if command else "no R on stdin")
    return found


def _add_properties(rset, texts):
    for text in texts:
        name, colon, ranks = text.partition(":")
        try:
            members = set(idset.ids(ranks)) if colon else None
            rset.set_property(name, members)
        except ValueError as exc:
            raise CommandError(f"failed to assign properties: {exc}") from None


@command(
    "flux-R encode",
    "[OPTIONS]...",
    "Encode simple R objects on stdout",
    [
        Opt("local", "l", usage="Encode R from local system with HWLOC"),
        Opt("xml", "x", "FILE", "Encode R from an HWLOC XML file"),
        Opt("hwloc-xml", None, "FILE", "The same, and keep the topology for TreePool"),
        Opt("ranks", "r", "IDS", "Ranks to encode (default: 0)"),
        Opt("cores", "c", "IDS", "Assign cores with IDS to each rank in R"),
        Opt("gpus", "g", "IDS", "Assign gpus with IDS to each rank in R"),
        Opt("hosts", "H", "HOSTS", "Host list to encode (default: hostname, once per rank)"),
        Opt("property", "p", "NAME:RANKS", "Assign property NAME to target RANKS"),
    ],
)
def encode(opts):
    hosts = None
    if "hosts" in opts:
        try:
            hosts = hostlist.decode(opts.get("hosts"))
        except ValueError:
            raise CommandError(f"Invalid hostlist '{opts.get('hosts')}'") from None
    if "ranks" in opts:
        ranks = list(idset.members(_ids("ranks", opts.get("ranks"))))
    else:
        ranks = list(range(len(hosts))) if hosts else [0]
    if hosts is None:
        hosts = [socket.gethostname()] * len(ranks)
    if len(hosts) != len(ranks):
        raise CommandError(
            f"hostname count in '{opts.get('hosts')}' does not match nranks ({len(ranks)})"
        )
    have = {
        "core": _ids("cores", opts.get("cores") or ("" if opts.get("gpus") else "0")),
        "gpu": _ids("gpus", opts.get("gpus", "")),
    }
    xml = None
    if "xml" in opts or "hwloc-xml" in opts or "local" in opts:
        from flux_embedded.cmd.lib import topology

        path = opts.get("hwloc-xml") or opts.get("xml")
        xml = topology.read_xml(path) if path else topology.local_xml()
        have = topology.children(xml)
    rset = RSet.of(dict.fromkeys(ranks, kinds(have)), dict(zip(ranks, hosts)))
    _add_properties(rset, opts.all("property"))
    if "hwloc-xml" in opts:
        from flux_embedded.cmd.lib import topology

        print(json.dumps(topology.amend(rset.to_dict(), xml), ensure_ascii=False))
        return 0
    print(rset.encode())
    return 0


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


def _ranks(text):
    try:
        return set(idset.ids(text))
    except ValueError:
        raise CommandError(f"Invalid ranks option: '{text}': Invalid argument") from None


@command(
    "flux-R decode",
    "[OPTIONS]...",
    "Read R on stdin and emit data, R, or a summary",
    [
        Opt("short", "s", usage="Print short-form list of resources"),
        Opt("nodelist", "l", usage="Print nodelist"),
        Opt("ranks", "r", usage="Print idset of ranks"),
        Opt("count", "c", "TYPE", "Print count of resource TYPE"),
        Opt("include", "i", "RANKS", "Include only ranks in RANKS"),
        Opt("exclude", "x", "RANKS", "Exclude ranks in RANKS"),
        Opt(
            "properties",
            "p",
            "LIST",
            "Include only resources with properties in LIST, comma separated",
        ),
    ],
)
def decode(opts):
    rset = _stdin_sets()[0]
    try:
        if "properties" in opts:
            rset = rset.select(_with_properties(rset, opts.get("properties").split(",")))
        if "include" in opts:
            rset = rset.select(_ranks(opts.get("include")))
        if "exclude" in opts:
            rset = rset.select(set(rset.have) - _ranks(opts.get("exclude")))
    except ValueError as exc:
        raise CommandError(str(exc)) from None
    if opts.get("short"):
        print(rset.short())
    elif opts.get("nodelist"):
        print(rset.encode_hosts())
    elif opts.get("ranks"):
        print(rset.encode_ranks())
    elif "count" in opts:
        print(rset.count(opts.get("count")))
    else:
        print(rset.encode())
    return 0


def _fold(name, operation):
    @command(f"flux-R {name}", "", args=0)
    def run(opts):
        result, *others = _stdin_sets(command=name)
        for other in others:
            try:
                result = operation(result, other)
            except ValueError as exc:
                raise CommandError(str(exc)) from None
        print(result.encode())
        return 0

    return run


@command("flux-R remap", "", args=0)
def remap(opts):
    for rset in _stdin_sets():
        print(rset.remap().encode())
    return 0


@command("flux-R rerank", "HOSTLIST", "Re-rank hosts in R in the order of HOSTLIST", args=1)
def rerank(opts):
    try:
        hosts = hostlist.decode(opts.args[0])
        print(_stdin_sets()[0].rerank(hosts).encode())
    except ValueError as exc:
        raise CommandError(f"rerank: {exc}") from None
    return 0


@command(
    "flux-R set-property",
    "PROPERTY:RANKS [PROPERTY:RANKS]...",
    "Set properties on R",
    args=(1, None),
)
def set_property(opts):
    rset = _stdin_sets()[0]
    _add_properties(rset, opts.args)
    print(rset.encode())
    return 0


def _append(one, other):
    common = one.intersect(other)
    if any(common.have.values()):
        raise ValueError(f"R objects '{one.short()}' and '{other.short()}' overlap")
    return one.union(other)


@command("flux-R verify", "", args=0)
def verify(opts):
    """The second R must have all that the first one promises."""
    found = _stdin_sets(0)
    if len(found) != 2:
        raise CommandError("verify requires exactly 2 R objects on stdin")
    expected, actual = found
    lacks, extras = expected.diff(actual), actual.diff(expected)
    found = []
    for rank in expected.rank_list():
        host, other = expected.hosts.get(rank, ""), actual.hosts.get(rank)
        if rank not in actual.have:
            found.append(f"error: rank {rank} ({host}) missing resources: rank{rank}")
            continue
        if other != expected.hosts.get(rank):
            found.append(f"error: rank {rank} got hostname '{other}', expected '{host}'")
        if rank in lacks.have:
            missing = short_kinds(lacks.have[rank])
            found.append(f"error: rank {rank} ({host}) missing resources: {missing}")
        if rank in extras.have:
            extra = short_kinds(extras.have[rank])
            found.append(f"warning: rank {rank} ({host}) has extra resources: {extra}")
    found += [
        f"warning: found extra rank {r}" for r in actual.rank_list() if r not in expected.have
    ]
    for text in found:
        print(f"flux-R: {text}", file=sys.stderr)
    return 1 if any(text.startswith("error") for text in found) else 0


@command("flux-R parse-config", "PATH", "Read config from PATH and emit R", args=1)
def parse_config(opts):
    """R from the ``[resource]`` table of a TOML file or directory."""
    from flux_embedded.broker import config
    from flux_embedded.services.resource import sources

    try:
        result = sources.from_config(config.load_path(opts.args[0]))
    except (OSError, ValueError) as exc:
        raise CommandError(str(exc)) from None
    if result is None:
        raise CommandError(f"{opts.args[0]}: no resources are configured")
    print(json.dumps(result, ensure_ascii=False))
    return 0


COMMANDS = {
    "encode": encode,
    "append": _fold("append", _append),
    "diff": _fold("diff", RSet.diff),
    "intersect": _fold("intersect", RSet.intersect),
    "remap": remap,
    "rerank": rerank,
    "decode": decode,
    "verify": verify,
    "set-property": set_property,
    "parse-config": parse_config,
}


def main(argv):
    if argv and argv[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0
    if not argv:
        raise UsageError(USAGE)
    if argv[0] not in COMMANDS:
        raise UsageError(f"flux-R: Unknown subcommand: {argv[0]}\n" + USAGE)
    return COMMANDS[argv[0]](argv[1:])
