# SPDX-License-Identifier: LGPL-3.0-or-later
"""Watching the events of a job."""

import errno
import json
import signal
import time

from flux.constants import FLUX_RPC_STREAMING

#: a flag of job-info.eventlog-watch: the log need not be there yet
WAITCREATE = 1


def watch(handle, jobid, path="eventlog", waitcreate=False):
    """The future of a stream of the events of one of a job's logs; see `events_of`."""
    payload = {"id": int(jobid), "path": path, "flags": WAITCREATE if waitcreate else 0}
    return handle.rpc("job-info.eventlog-watch", payload, flags=FLUX_RPC_STREAMING)


def events_of(future):
    """The events of one response, dicts of RFC 18; None at the end of the log.

    Raises:
        OSError: the log cannot be read
    """
    try:
        text = future.get()["event"]
    except OSError as exc:
        if exc.errno == errno.ENODATA:
            return None
        raise
    return [json.loads(line) for line in text.splitlines() if line]


def watch_events(handle, jobid, path="eventlog", waitcreate=False, deadline=None):
    """Yield the events of a log up to its end.

    Raises:
        OSError: it cannot be read
        TimeoutError: the time of `deadline` (of time.monotonic) has come
    """
    future = watch(handle, jobid, path, waitcreate)
    while True:
        if deadline is not None:
            future.wait_for(max(0, deadline - time.monotonic()))
        events = events_of(future)
        if events is None:
            return
        yield from events
        future.reset()


def exit_code(status):
    """The exit status of a shell for a wait status."""
    return 128 + (status & 0x7F) if status & 0x7F else (status >> 8) & 0xFF


def end_text(status):
    """The message about tasks that ended with this wait status; None if they succeeded."""
    code = exit_code(status)
    if code == 0:
        return None
    if status & 0x7F:
        return f"job shell {signal.strsignal(status & 0x7F)}"
    name = signal.strsignal(code - 128) if 128 < code < 128 + signal.NSIG else None
    return f"task(s) {name}" if name else f"task(s) exited with exit code {code}"
