"""Attaching to a job: ``flux run`` and ``flux job attach``."""

import base64
import errno
import os
import signal
import sys
import time

from flux_embedded.cmd.lib import follow
from flux_embedded.cmd.lib.client import connect
from flux_embedded.cmd.lib.errors import warn
from flux_embedded.formats.jobid import f58

#: As much of standard input as goes into one message.
CHUNK = 1 << 16


class Input:
    """Sends standard input to a job's tasks, from when they have started until it ends.

    Args:
        client: the connection
        jobid (int): the job
        fd (int): what to read
        ranks (str): an idset of the tasks that get it; None for all
    """

    def __init__(self, client, jobid, fd, ranks=None):
        self.client = client
        self.jobid = jobid
        self.fd = fd
        self.ranks = ranks
        self.failed = False

    def on_event(self, follower, event):
        if event["name"] == "start":
            self.client.watch_fd(self.fd, self._readable)
        elif event["name"] in ("finish", "clean"):
            self.client.watch_fd(self.fd, None)

    def _readable(self):
        try:
            data = os.read(self.fd, CHUNK)
        except OSError:
            data = b""  # a terminal that went away has nothing more to say
        payload = {"id": self.jobid, "data": base64.b64encode(data).decode(), "encoding": "base64"}
        if self.ranks is not None:
            payload["ranks"] = self.ranks
        if not data:
            payload["eof"] = True
            self.client.watch_fd(self.fd, None)
        self.client.send("job-exec.write", payload).then(self._written)

    def _written(self, answer, error):
        # Tasks that ended meanwhile will not miss it; tasks that were never there are somebody's error.
        if error is not None and error.errno == errno.EPIPE:
            warn(f"flux-job: attach_send_shell: {error.strerror}")
            self.failed = True
            self.client.stop()


def submit(args, payload, **options):
    """Submit a job with the options of the command line, and attach to it; options as for `attach`."""
    client = connect()
    jobid = client.rpc("job-ingest.submit", payload)["id"]
    if args.verbose:
        warn(f"jobid: {f58(jobid)}")
    sys.stdout.flush()
    options["label"] = args.label_io
    options["show_events"], options["show_exec"] = args.verbose > 1, args.verbose > 2
    return attach(client, jobid, **options)


def attach(client, jobid, stdin=None, ranks=None, **options):
    """Show a job's output until it is over; returns its exit code.

    Args:
        client: the connection
        jobid (int): the job
        stdin (int): a file descriptor whose content the tasks get, or None
        ranks (str): an idset of the tasks that get it; None for all
        options: see `Follower`

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

    source = Input(client, jobid, stdin, ranks) if stdin is not None else None
    on_event = source.on_event if source else None
    previous = signal.signal(signal.SIGINT, interrupted)
    try:
        follower = follow.run_until_done(client, jobid, on_event=on_event, **options)
    finally:
        signal.signal(signal.SIGINT, previous)
    if source and source.failed:
        return 1
    return follow.report_end(follower)
