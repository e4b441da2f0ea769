"""``flux job info`` and ``flux job stats``."""

import errno
import sys

from flux_embedded.cmd.lib import jobids
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import CommandError, UsageError
from flux_embedded.cmd.lib.eventlog import compact
from flux_embedded.cmd.lib.optparse import Opt, command

CURRENT = 2

KEYS = """\
Usage: flux job info id key
some useful keys are:
  J                    - signed jobspec
  R                    - allocated resources
  eventlog             - primary job eventlog
  jobspec              - job specification
  guest.exec.eventlog  - execution eventlog
  guest.input          - job input log
  guest.output         - job output log
Use flux job info -h to list available options
"""


@command(
    "flux-job info",
    "[OPTIONS] id key",
    "Display info for a job",
    [
        Opt("original", "o", usage='For key "jobspec", return the original submitted jobspec'),
        Opt("base", "b", usage='For key "jobspec" or "R", do not apply updates from eventlog'),
    ],
)
def info(opts):
    if len(opts.args) != 2:
        raise UsageError(KEYS)
    word, key = opts.args
    jobid = jobids.parse(word)
    client = connect()
    flags = CURRENT if key in ("R", "jobspec") and not opts.get("base") else 0
    name = key
    if key == "jobspec" and opts.get("original"):
        name, flags = "J", 0
    try:
        answer = client.rpc("job-info.lookup", {"id": jobid, "keys": [name], "flags": flags})
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        raise CommandError(_not_found(client, jobid, key)) from None
    text = answer[name]
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    return 0


def _not_found(client, jobid, key):
    try:
        client.rpc("job-info.lookup", {"id": jobid, "keys": ["eventlog"], "flags": 0})
    except OSError:
        return "invalid job id"
    return f"{key}: key not found"


@command("flux-job stats", "[OPTIONS]", "Get current job stats", args=0)
def stats(opts):
    print(compact(connect().rpc("job-list.job-stats", {})))
    return 0
