"""``flux event``: publish and watch events."""

import json

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.optparse import Group, Opt, Parser


def pub(argv):
    parser = Parser(
        "flux-event pub",
        "[OPTIONS] topic [payload]",
        "Publish event",
        [
            Opt("raw", "r", usage="Payload is raw bytes"),
            Opt("synchronous", "s", usage="Wait until event is published"),
            Opt("loopback", "l", usage="Wait until the event is received"),
            Opt("private", "p", usage="Set privacy flag on published event"),
        ],
    )
    opts = parser.parse(argv)
    if not opts.args:
        raise parser.fail_usage()
    topic, *words = opts.args
    payload = {"topic": topic}
    text = " ".join(words)
    if words and "raw" in opts:
        payload["payload"] = text
    elif words:
        try:
            payload["payload"] = json.loads(text)
        except ValueError:
            raise CommandError("publish: Invalid argument: the payload must be JSON") from None
    connect().rpc("event.publish", payload)
    return 0


def sub(argv):
    parser = Parser(
        "flux-event sub",
        "[OPTIONS] [topic] [topic ...]",
        "Subscribe to events",
        [
            Opt("count", "c", "N", "Process N events then exit", kind="int"),
            Opt("raw", "r", usage="Dump raw event payload"),
        ],
    )
    opts = parser.parse(argv)
    left = [opts.get("count", 0)]
    client = connect()

    def received(msg):
        print(f"{msg.topic}\t{msg.payload_str or ''}", flush=True)
        left[0] -= 1
        if left[0] == 0:
            client.stop()

    client.on_event = received
    for topic in opts.args or [""]:
        client.rpc("event.subscribe", {"topic": topic})
    client.run()
    return 0


def main(argv):
    commands = {"pub": (pub, "Publish event"), "sub": (sub, "Subscribe to events")}
    return Group("flux-event", "", commands).run(argv)
