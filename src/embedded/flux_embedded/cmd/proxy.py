"""``flux proxy``: run a command that speaks to another instance on this host."""

import os

from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.cmd.lib.eventlog import parse
from flux_embedded.cmd.lib.optparse import Opt, command
from flux_embedded.formats import jobid as encodings


def uri_of(target):
    """The local URI that a URI or a job id stands for.

    Raises:
        CommandError: it is neither, or the job runs no instance
    """
    if target.startswith("local://"):
        return target
    if "://" in target or target.startswith("ssh:"):
        raise CommandError(
            f"{target}: the embedded instance can be reached by local:// on its own host only"
        )
    try:
        jobid = encodings.decode(target.split(":", 1)[1] if target.startswith("jobid:") else target)
    except ValueError:
        raise CommandError(f"Unable to resolve {target} to a URI") from None
    try:
        answer = connect().rpc("job-info.lookup", {"id": jobid, "keys": ["eventlog"], "flags": 0})
    except OSError:
        raise CommandError(
            f"Unable to resolve {target} to a URI: jobid {target} not found"
        ) from None
    uri = None
    for event in parse(answer["eventlog"]):
        if event["name"] == "memo":
            uri = event["context"].get("uri", uri)
    if uri is None:
        raise CommandError(f"Unable to resolve {target} to a URI: URI not found for job {target}")
    return (
        "local://" + uri.partition("://")[2].split("/", 1)[1] if uri.startswith("ssh://") else uri
    )


@command(
    "flux-proxy",
    "[OPTIONS] JOBID|URI [COMMAND...]",
    "Connect to a running Flux instance",
    [
        Opt(
            "force",
            "f",
            usage="Allow the proxy command to connect to a broker running a different version",
        ),
        Opt("nohup", "n", usage="accepted for compatibility"),
        Opt("reconnect", None, usage="accepted for compatibility"),
    ],
    args=(1, None),
)
def main(opts):
    uri = uri_of(opts.args[0])
    connect(uri)
    from flux_embedded.cmd.env import execute

    command = opts.args[1:] or [os.environ.get("SHELL", "/bin/sh")]
    if len(command) == 1 and opts.args[1:]:
        command = [os.environ.get("SHELL", "/bin/sh"), "-c", command[0]]
    execute(command, {**os.environ, "FLUX_URI": uri})
    return 0
