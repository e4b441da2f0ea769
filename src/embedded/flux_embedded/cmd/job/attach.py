# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux job attach``: show a job's output, feed it standard input, end with its exit status."""

import base64
import errno
import os
import sys
import time

import flux
from flux.constants import FLUX_POLLIN
from flux.job import JobID
from flux_embedded.cmd.lib.watch import end_text, events_of, exit_code, watch
from flux_engine.command.errors import CommandError, error_text, warn
from flux_engine.formats.jsontext import dumps

#: bytes of standard input in one message
CHUNK = 1 << 16
#: names of the levels of the job shell's messages
LOG_LEVELS = {0: "FATAL", 1: "ALERT", 2: "CRIT", 3: "ERROR", 4: "WARN"}


class Attached:
    """One job, followed to its end.

    Args:
        handle: a handle on its instance
        args: the options of the command

    Attributes:
        status (int): wait status of its tasks, None if there were none
        failed (bool): it ended by an exception, or cannot be followed
    """

    def __init__(self, handle, args):
        self.handle = handle
        self.args = args
        self.id = args.id
        self.status = None
        self.failed = self.started = self.detached = self.had_output = False
        self.error = None
        self._submitted = None
        self._open = 0
        self._held = []  # messages to print after all output
        self._stdin = None
        self._watch("eventlog", self._event)
        self._watch("guest.output", self._output)
        if args.show_exec:
            self._watch("guest.exec.eventlog", lambda event: self._show("exec", event))

    def _watch(self, path, method):
        self._open += 1

        def received(future):
            if path == "eventlog" and self.detached:
                return
            try:
                events = events_of(future)
            except OSError as exc:
                events = None
                self.error = exc if path == "eventlog" else self.error
            for event in events or ():
                method(event)
            if events is None:
                self._end()
            else:
                future.reset()

        watch(self.handle, self.id, path, waitcreate=path != "eventlog").then(received)

    def _end(self):
        self._open -= 1
        if self._open == 0:
            for text in self._held:
                warn(text)
            self.handle.reactor_stop()

    # -- events --------------------------------------------------------------------------------------

    def _offset(self, event):
        """Seconds since the job was submitted."""
        return event["timestamp"] - (self._submitted or event["timestamp"])

    def _event(self, event):
        if self.detached:
            return
        name, context = event["name"], event.get("context", {})
        if name == "submit":
            self._submitted = event["timestamp"]
        elif name == "start":
            self.started = True
            if sys.stdin is not None:
                self._read_stdin()
        elif name == "finish":
            self.status = context.get("status", 0)
        elif name == "exception" and context.get("severity") == 0:
            self.failed = True
        if name in ("finish", "clean"):
            self._stop_stdin()
        if name == "exception":
            self._show_exception(event, context)
        elif self.args.show_events:
            self._show("job", event)
        if name == self.args.wait_event:
            self.detached = True
            self._end()

    def _show_exception(self, event, context):
        text = (
            f"{self._offset(event):.3f}s: job.exception {self.id} type={context.get('type')} "
            f"severity={context.get('severity')} {context.get('note') or ''}"
        )
        if context.get("type") == "exec" and context.get("severity") == 0:
            # The shell's message about it comes through another stream, and comes first.
            self._held.append(text)
        else:
            warn(text)

    def _show(self, log, event):
        context = event.get("context")
        text = f"{self._offset(event):.3f}s: {log}.{event['name']}"
        warn(f"{text} {dumps(context)}" if context else text)

    # -- output --------------------------------------------------------------------------------------

    def _output(self, event):
        name, context = event["name"], event.get("context", {})
        self.had_output = True
        if name == "data" and context.get("data"):
            data = context["data"]
            if context.get("encoding") == "base64":
                data = base64.b64decode(data).decode("utf-8", "surrogateescape")
            if self.args.label_io:
                lines = data.splitlines(keepends=True)
                data = "".join(f"{context.get('rank', '')}: {line}" for line in lines)
            sys.stdout.flush()
            out = sys.stderr if context.get("stream") == "stderr" else sys.stdout
            out.write(data)
            out.flush()
        elif name == "log":
            words = [f"{self._offset(event):.3f}s: flux-shell[{context.get('rank', 0)}]:"]
            for word in (LOG_LEVELS.get(max(context["level"], 0)), context.get("component")):
                words += [f"{word}:"] if word else []
            warn(" ".join([*words, str(context.get("message", ""))]))
        elif name == "redirect":
            where = f"{context.get('stream')} redirected to {context.get('path')}"
            warn(f"{context.get('rank', '')}: {where}")

    # -- standard input ------------------------------------------------------------------------------

    def _read_stdin(self):
        watcher = self.handle.fd_watcher_create(sys.stdin.fileno(), self._readable, FLUX_POLLIN)
        self._stdin = watcher.start() or watcher

    def _stop_stdin(self):
        if self._stdin is not None:
            self._stdin.stop()
            self._stdin = None

    def _readable(self, handle, watcher, fd, revents, args):
        try:
            data = os.read(fd, CHUNK)
        except OSError:
            data = b""  # end of input from a closed terminal
        payload = {
            "id": int(self.id),
            "data": base64.b64encode(data).decode(),
            "encoding": "base64",
        }
        if self.args.stdin_ranks != "all":
            payload["ranks"] = self.args.stdin_ranks
        if not data:
            payload["eof"] = True
            self._stop_stdin()
        self.handle.rpc("job-exec.write", payload).then(self._written)

    def _written(self, future):
        try:
            future.get()
        except OSError as exc:
            # Harmless for tasks that have ended; for tasks that never existed it is an error.
            if exc.errno == errno.EPIPE:
                warn(f"flux-job: ERROR: attach_send_shell: {error_text(exc)}")
                self.failed, self.status = True, None
                self.handle.reactor_stop()

    # -- the whole -----------------------------------------------------------------------------------

    def run(self):
        """Follow the job; returns the exit status.

        The first ctrl-C warns, the second within two seconds cancels the job.
        """
        last = -10.0
        while True:
            try:
                self.handle.reactor_run()
                break
            except KeyboardInterrupt:
                if time.monotonic() - last < 2:
                    warn("flux-job: canceling job")
                    flux.job.cancel_async(self.handle, self.id, "interrupted by ctrl-C")
                else:
                    warn("flux-job: one more ctrl-C within 2s to cancel or ctrl-Z to detach")
                last = time.monotonic()
        if self.error is not None:
            reason = "No such job" if self.error.errno == errno.ENOENT else error_text(self.error)
            raise CommandError(f"Failed to attach to {self.id.orig}: {reason}")
        if self.started and not (self.had_output or self.detached):
            warn("flux-job: No job output found")
        if self.status is not None:
            text = end_text(self.status)
            if text:
                warn(f"flux-job: {text}")
            return exit_code(self.status)
        return int(self.failed or self.detached)


def attach(args):
    return Attached(flux.Flux(), args).run()


def add_commands(parser):
    one = parser.command("attach", attach, "show the output of a job, and end as it does")
    one.flag("-E", "--show-events", text="show its events on stderr")
    one.flag("-X", "--show-exec", text="show those of its execution on stderr")
    one.add_argument("-w", "--wait-event", metavar="EVENT", help="detach from it after this event")
    one.flag("-l", "--label-io", text="put the task before each line of output")
    one.flag("-v", "--verbose", text="accepted")
    one.flag("-u", "--unbuffered", text="accepted")
    one.add_argument(
        "-i", "--stdin-ranks", metavar="RANKS", default="all", help="input for these tasks only"
    )
    one.add_argument("id", metavar="JOBID", type=JobID)
