"""Attaching to a job: ``flux run`` and ``flux job attach``."""

import signal
import time

from flux_embedded.cmd.lib import follow
from flux_embedded.cmd.lib.errors import warn


def attach(client, jobid, label=False, verbose=0, stdin=None):
    """Show a job's output until it is over; returns its exit code.

    The first ctrl-C warns, the second within two seconds cancels the job.

    Raises:
        OSError: there is no such job
    """
    last = [0.0]

    def interrupted(signum, frame):
        now = time.monotonic()
        if now - last[0] > 2:
            last[0] = now
            warn("flux-job: one more ctrl-C within 2s to cancel or ctrl-Z to detach")
            return
        warn("flux-job: canceling job")
        payload = {"id": jobid, "type": "cancel", "severity": 0, "note": "interrupted by ctrl-C"}
        client.send("job-manager.raise", payload).then(lambda answer, error: None)

    previous = signal.signal(signal.SIGINT, interrupted)
    try:
        follower = follow.run_until_done((client, jobid), label=label, verbose=verbose)
    finally:
        signal.signal(signal.SIGINT, previous)
    return follow.report_end(follower)
