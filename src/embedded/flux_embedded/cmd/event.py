"""``flux event``: publish and watch events."""

import json

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.optparse import Group, Opt, command


@command(
    "flux-event pub",
    "[OPTIONS] topic [payload]",
    "Publish event",
    [
        Opt("raw", "r", usage="Payload is raw bytes"),
        Opt("synchronous", "s", usage="Wait until event is published"),
        Opt("loopback", "l", usage="Wait until the event is received"),
        Opt("private", "p", usage="Set privacy flag on published event"),
    ],
    args=(1, None),
)
def pub(opts):
    topic, *words = opts.args
    payload = {"topic": topic}
    if words:
        payload["payload"] = text = " ".join(words)
        if "raw" not in opts:
            try:
                payload["payload"] = json.loads(text)
            except ValueError:
                pass
    answer = connect().rpc("event.publish", payload)
    if "synchronous" in opts:
        print(f"seq={answer['seq']}")
    return 0


@command(
    "flux-event sub",
    "[OPTIONS] [topic] [topic ...]",
    "Subscribe to events",
    [Opt("count", "c", "N", "Process N events then exit", kind="int")],
)
def sub(opts):
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


main = Group("flux-event", "", [pub, sub])
