# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux job attach``: show a job's output, and end with its exit status."""

import sys

import flux
from flux.job import JobID, JobWatcher, cancel_async
from flux_engine.command.errors import warn


class _Stream:
    """Standard output or error as `JobWatcher` writes to it; it puts the job's id before a labelled line, which real ``attach`` does not."""

    def __init__(self, stream, is_labelled):
        self._stream = stream
        self._is_labelled = is_labelled

    def write(self, text):
        sys.stdout.flush()
        self._stream.write(text.partition(": ")[2] if self._is_labelled else text)
        self._stream.flush()

    def flush(self):
        """Nothing is kept."""


def attach(args):
    handle = flux.Flux()
    watcher = JobWatcher(handle, labelio=args.label_io, log_events=args.show_events)
    streams = [_Stream(stream, args.label_io) for stream in (sys.stdout, sys.stderr)]
    watcher.add_jobid(args.id, *streams)
    while True:
        try:
            handle.reactor_run()
            break
        except KeyboardInterrupt:
            warn("flux-job: canceling job")
            cancel_async(handle, args.id, "interrupted by ctrl-C")
    if watcher.exitcode:
        warn(f"flux-job: {args.id}: exit status {watcher.exitcode}")
    return watcher.exitcode


def add_commands(parser):
    one = parser.command("attach", attach, "show the output of a job, and end as it does")
    one.flag("-E", "--show-events", text="show its events on stderr")
    one.flag("-l", "--label-io", text="put the task before each line of output")
    one.flag("-u", "--unbuffered", text="accepted")
    one.add_argument("id", metavar="JOBID", type=JobID)
