"""``flux uptime``."""

import time

from flux_embedded.cmd.lib import clock
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.jobinfo import username
from flux_embedded.cmd.lib.optparse import command
from flux_embedded.cmd.lib.times import fsd


def _attribute(client, name, default):
    try:
        return client.rpc("attr.get", {"name": name})["value"]
    except OSError:
        return default


@command("flux-uptime", "", "Tell how long Flux has been up and running", args=0)
def main(opts):
    client = connect()
    now = clock.now(client)
    started = float(_attribute(client, "broker.starttime", now))
    owner = username(int(_attribute(client, "security.owner", "0")))
    depth = _attribute(client, "instance-level", "0")
    size = _attribute(client, "size", "1")
    stamp = time.strftime("%H:%M:%S", time.localtime(now))
    print(
        f" {stamp} run {fsd(now - started)},  owner {owner},  depth {depth},  size {size}"
        + _notes(client)
    )
    return 0


def _notes(client):
    """What is not as it should be: drained ranks, a queue that is closed."""
    from flux_embedded.formats import idset

    text = ""
    try:
        status = client.rpc("resource.status")
        drained = sum(idset.count(idset.decode(ranks)) for ranks in status.get("drain", {}))
        offline = idset.count(idset.decode(status.get("offline", "")))
        text += f",  {drained} drained" if drained else ""
        text += f",  {offline} offline" if offline else ""
        queue = client.rpc("job-manager.queue-status", {})
        text += "" if queue["enable"] else "\n  submit disabled"
        text += (
            "" if queue["start"] else "\n  queue stopped" if queue["enable"] else ", queue stopped"
        )
    except OSError:
        pass
    return text
