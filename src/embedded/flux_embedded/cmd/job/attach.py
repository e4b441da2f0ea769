# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux job attach``: show a job's output, and end with its exit status."""

import os
import signal
import sys
import time

import flux
from flux.job import JobID, cancel_async, event_watch_async, kill_async
from flux.job.output import output_event_watch_async
from flux_engine.command.errors import CommandError, error_text, warn
from flux_engine.formats import states
from flux_engine.formats.jsontext import encoder

#: Signals forwarded to the job.
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)


class _Attachment:
    """Prints the output and events of a job as they arrive. `code`: exit code; `status`: wait status, or None."""

    def __init__(self, handle, args):
        self.args = args
        self.status = None
        self.code = 1
        self.is_fatal = False
        self._began = None
        self._interrupted = -60.0
        event_watch_async(handle, args.id).then(self._event)
        output_event_watch_async(handle, args.id, nowait=True).then(self._output)
        for signum in SIGNALS:
            # unref: they do not keep the reactor running
            handle.signal_watcher_create(signum, self._forward).unref().start()
        self._stop = handle.signal_watcher_create(signal.SIGTSTP, self._suspend).unref()

    def interrupt(self, handle):
        """Handle Ctrl-C: warn, or cancel the job if it is the second one within 2 s."""
        now = time.monotonic()
        if now < self._interrupted + 2:
            cancel_async(handle, self.args.id, "interrupted by ctrl-C")
        else:
            self._interrupted = now
            self._stop.start()
            warn("flux-job: one more ctrl-C within 2s to cancel or ctrl-Z to detach")

    def _suspend(self, handle, watcher, signum, args):
        if time.monotonic() < self._interrupted + 2:
            warn("flux-job: detaching...")
            handle.reactor_stop()
        else:
            watcher.stop()
            warn("flux-job: one more ctrl-Z to suspend")

    def _forward(self, handle, watcher, signum, args):
        kill_async(handle, self.args.id, signum).then(self._forwarded)

    def _forwarded(self, future):
        try:
            future.get()
        except OSError as exc:
            warn(f"flux-job: kill: {error_text(exc)}")

    def _print(self, event, text):
        warn(f"{event.timestamp - (self._began or event.timestamp):.3f}s: {text}")

    def _event(self, future):
        event = future.get_event()
        if event is None:
            return
        self._began = self._began or event.timestamp
        if event.name == "exception":
            context = {"note": "", **event.context}
            text = "job.exception {id} type={type} severity={severity} {note}"
            self._print(event, text.format(id=self.args.id, **context))
            self.is_fatal = self.is_fatal or context["severity"] == 0
        elif self.args.show_events:
            context = encoder(ensure_ascii=False)(event.context) if event.context else ""
            self._print(event, f"job.{event.name} {context}".rstrip())
        if event.name == "finish":
            self.status = status = event.context["status"]
            self.code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else status >> 8

    def _output(self, future):
        try:
            event = future.get_event()
        except FileNotFoundError:
            warn("flux-job: No job output found")
            return
        if event is None:
            return
        if event.name == "log":
            self._print(event, event.render())
        elif event.name == "redirect":
            warn("{rank}: {stream} redirected to {path}".format(**event.context))
        elif event.name == "data" and event.data is not None:
            stream = getattr(sys, event.stream)
            sys.stdout.flush()
            stream.write(f"{event.rank}: {event.data}" if self.args.label_io else event.data)
            stream.flush()


def attach(args):
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    handle = flux.Flux()
    job = _Attachment(handle, args)
    while True:
        try:
            handle.reactor_run()
            break
        except FileNotFoundError:
            raise CommandError(f"Failed to attach to {args.id.orig}: No such job") from None
        except KeyboardInterrupt:
            job.interrupt(handle)
    if job.status:
        warn(f"flux-job: {states.ending(job.status)}")
    return job.code or int(job.is_fatal)


def add_commands(parser):
    one = parser.command("attach", attach, "show the output of a job, and exit with its status")
    one.option("-E --show-events", "show its events on stderr")
    one.option("-l --label-io", "prefix each line of output with its task")
    one.option("-u --unbuffered", "accepted")
    one.option("id=JOBID", type=JobID)
