# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux ping``: the round trip to a service."""

import time

import flux
from flux.constants import FLUX_NODEID_ANY
from flux.hostlist import Hostlist
from flux_embedded.cmd.lib.errors import CommandError, error_text
from flux_embedded.cmd.lib.options import Parser


def _rank(handle, word):
    """The broker rank that a number or a host name stands for; None if it is neither."""
    if word.isdigit():
        return int(word)
    hosts = list(Hostlist(handle.attr_get("hostlist")))
    return hosts.index(word) if word in hosts else None


def main(argv):
    parser = Parser("flux-ping", status=1)
    parser.add_argument("-r", "--rank", metavar="N", help="the service on this broker rank")
    parser.add_argument("-p", "--pad", metavar="N", type=int, default=0, help="bytes to send along")
    parser.add_argument(
        "-i", "--interval", metavar="SECONDS", type=float, default=1.0, help="between requests"
    )
    parser.add_argument("-c", "--count", metavar="N", type=int, default=0, help="so many requests")
    parser.flag("-u", "--userid", text="show whose the request is")
    parser.add_argument("target", help="SERVICE, RANK!SERVICE, RANK or HOST")
    args = parser.parse_args(argv)
    handle = flux.Flux()
    rank, target = args.rank or "any", args.target
    if "!" in target:
        rank, _, target = target.partition("!")
    elif args.rank is None and _rank(handle, target) is not None:
        rank, target = target, "broker"
    nodeid = FLUX_NODEID_ANY if rank == "any" else _rank(handle, rank)
    if nodeid is None:
        raise CommandError(f"invalid nodeid/host: '{rank}'")
    print(f"flux-ping {rank}!{target}")
    seq = 0
    while True:
        start = time.monotonic()
        try:
            answer = handle.rpc(f"{target}.ping", {"seq": seq, "pad": "p" * args.pad}, nodeid).get()
        except OSError as exc:
            raise CommandError(f"{rank}!{target}.ping: {error_text(exc)}") from None
        took = (time.monotonic() - start) * 1000
        who = f" userid={answer['userid']} rolemask={answer['rolemask']}" if args.userid else ""
        print(
            f"{answer['rank']}!{target}.ping pad={args.pad} seq={seq}{who} time={took:.3f} ms "
            f"({answer['route']})",
            flush=True,
        )
        seq += 1
        if seq == args.count:
            return
        time.sleep(args.interval)
