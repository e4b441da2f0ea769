"""``flux ping``: the round trip to a service."""

import time

from flux_embedded.cmd.lib.client import connect, rank_of
from flux_embedded.cmd.lib.errors import CommandError, error_text
from flux_embedded.cmd.lib.optparse import Opt, command
from flux_embedded.kernel import message


@command(
    "flux-ping",
    "[OPTIONS] target",
    "Measure round-trip latency to a Flux service",
    [
        Opt("rank", "r", "N", "Find target on a specific broker rank", kind="int"),
        Opt("pad", "p", "N", "Include in the payload a string of length N bytes", kind="int"),
        Opt("interval", "i", "N", "Specify the delay, in seconds, between successive requests"),
        Opt("count", "c", "N", "Specify the number of requests", kind="int"),
        Opt("batch", "b", usage="Send all requests at once"),
        Opt("userid", "u", usage="Include userid and rolemask in ping output"),
    ],
    args=1,
)
def main(opts):
    client = connect()
    target = opts.args[0]
    rank = str(opts.get("rank", "any"))
    if "!" in target:
        rank, _, target = target.partition("!")
    elif "rank" not in opts and rank_of(client, target) is not None:
        rank, target = target, "broker"
    nodeid = message.NODEID_ANY if rank == "any" else rank_of(client, rank)
    if nodeid is None:
        raise CommandError(f"invalid nodeid/host: '{rank}'")
    pad = opts.get("pad", 0)
    print(f"flux-ping {rank}!{target}")
    count = opts.get("count", 0)
    seq = 0
    while True:
        start = time.monotonic()
        try:
            answer = client.rpc(f"{target}.ping", {"seq": seq, "pad": "p" * pad}, nodeid)
        except OSError as exc:
            raise CommandError(f"{rank}!{target}.ping: {error_text(exc)}") from None
        took = (time.monotonic() - start) * 1000
        who = (
            f" userid={answer.get('userid')} rolemask={answer.get('rolemask')}"
            if opts.get("userid")
            else ""
        )
        name = f"{answer.get('rank', 0)}!{target}.ping"
        print(
            f"{name} pad={pad} seq={seq}{who} time={took:.3f} ms ({answer.get('route', '')})",
            flush=True,
        )
        seq += 1
        if seq == count:
            return 0
        time.sleep(float(opts.get("interval", "1.0")))
