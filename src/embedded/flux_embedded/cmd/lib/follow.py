"""Following a job from outside: its events, its output, its end."""

import errno
import json
import sys

from flux_embedded.cmd.lib.errors import warn
from flux_embedded.cmd.lib.eventlog import compact
from flux_embedded.formats.jobid import f58

WAITCREATE = 1

#: shell log levels as its messages name them
LOG_LEVELS = {-1: "FATAL", 0: "FATAL", 1: "ALERT", 2: "CRIT", 3: "ERROR", 4: "WARN"}


def exit_code(status):
    """The exit code that a shell would make of a wait(2) status."""
    if status & 0x7F:
        return 128 + (status & 0x7F)
    return (status >> 8) & 0xFF


def end_text(status):
    """What is said of tasks that ended with this wait status; None if they succeeded."""
    code = exit_code(status)
    if code == 0:
        return None
    import signal

    if status & 0x7F:
        return f"job shell {signal.strsignal(status & 0x7F)}"
    name = signal.strsignal(code - 128) if 128 < code < 128 + signal.NSIG else None
    return f"task(s) {name}" if name else f"task(s) exited with exit code {code}"


def watch_events(client, jobid, path="eventlog", waitcreate=False):
    """A stream of the events of one of a job's logs; see `events`."""
    payload = {"id": jobid, "path": path, "flags": WAITCREATE if waitcreate else 0}
    return client.stream("job-info.eventlog-watch", payload)


def events(payload):
    """The events in one response."""
    return [json.loads(line) for line in payload["event"].splitlines() if line]


class Follower:
    """Follows one job.

    Args:
        client: the connection.
        jobid: the job.
        done: called with this object when the job is over and its output shown.
        output: show its output.
        label: put the task's rank before each line of output.
        prefix: put this before the rank.
        show_events: show every event.
        show_exec: show those of its execution too.
        quiet: say nothing of output that goes to files.
        exceptions: show exceptions, as ``run`` and ``attach`` do.
        stdout, stderr: where output goes.
        wait_event: the event after which the job itself is of no more interest; its output is shown to the end.
        tail: show only the last so many lines of what there is of its output already.

    Attributes:
        code: exit code, once the job is over.
        events: the job's events so far.
        status: wait status of its tasks, None if there were none.
        exception: context of its first fatal exception.
    """

    def __init__(
        self,
        client,
        jobid,
        done,
        output=True,
        label=False,
        prefix="",
        show_events=False,
        show_exec=False,
        quiet=False,
        exceptions=True,
        stdout=None,
        stderr=None,
        on_event=None,
        wait_event=None,
        tail=None,
    ):
        self.client = client
        self.jobid = jobid
        self.done = done
        self.label = label
        self.prefix = prefix
        self.show_events = show_events
        self.quiet = quiet
        self.exceptions = exceptions
        self.stdout = stdout or sys.stdout
        self.stderr = stderr or sys.stderr
        self.on_event = on_event
        self.wait_event = wait_event
        self.tail = tail
        self.stored = []
        self.events = []
        self.started = self.detached = self.had_output = False
        self.status = None
        self.exception = None
        self.error = None
        self.submit_time = None
        self._open = 1
        self._held = []
        watch_events(client, jobid).then(self._event)
        if output:
            self._watch("guest.output", self._output if tail is None else self._store)
        if show_exec:
            self._watch("guest.exec.eventlog", self._exec_event)

    @property
    def code(self):
        if self.status is not None:
            return exit_code(self.status)
        if self.detached:
            return 1
        return 1 if self.exception is not None or self.error else 0

    def _watch(self, path, method):
        self._open += 1

        def received(payload, error):
            if error is None:
                for event in events(payload):
                    method(event)
            else:
                self._end()

        watch_events(self.client, self.jobid, path, waitcreate=True).then(received)

    def _end(self):
        self._open -= 1
        if self._open == 0:
            for event in self.stored[-self.tail :] if self.tail else ():
                self._output(event)
            self._say_held()
            self.stdout.flush()
            self.done(self)

    def offset(self, event):
        """Seconds since the job was submitted."""
        return event["timestamp"] - (self.submit_time or event["timestamp"])

    def _store(self, event):
        """One line of output, of which only the last ones are wanted."""
        if event["name"] in ("header", "redirect"):
            self._output(event)
        elif event["name"] == "log" or event.get("context", {}).get("data"):
            self.stored.append(event)

    def _event(self, payload, error):
        if self.detached:
            return
        if error is not None:
            if error.errno != errno.ENODATA:
                self.error = error
            self._end()
            return
        for event in events(payload):
            name, context = event["name"], event.get("context", {})
            self.events.append(event)
            if name == "submit":
                self.submit_time = event["timestamp"]
            elif name == "start":
                self.started = True
            elif name == "finish":
                self.status = context.get("status", 0)
            elif name == "exception" and context.get("severity") == 0 and self.exception is None:
                self.exception = context
            if self.on_event:
                self.on_event(self, event)
            if name == "exception" and self.exceptions:
                text = (
                    f"{self.offset(event):.3f}s: job.exception {f58(self.jobid)} "
                    f"type={context.get('type')} severity={context.get('severity')} "
                    f"{context.get('note') or ''}"
                )
                if context.get("type") == "exec" and context.get("severity") == 0:
                    # What the shell says of it comes through another stream, and was said first.
                    self._held.append(text)
                else:
                    self._say(text)
            elif self.show_events:
                self._show("job", event)
            if name == self.wait_event:
                self.detached = True
                self._end()
                return

    def _say_held(self):
        for text in self._held:
            self._say(text)
        self._held = []

    def _show(self, log, event):
        context = event.get("context")
        text = f"{self.offset(event):.3f}s: {log}.{event['name']}"
        self._say(f"{text} {compact(context)}" if context else text)

    def _exec_event(self, event):
        self._show("exec", event)

    def _say(self, text):
        self.stdout.flush()
        self.stderr.write(text + "\n")
        self.stderr.flush()

    def _output(self, event):
        name, context = event["name"], event.get("context", {})
        self.had_output = True
        if name == "data":
            data = context.get("data")
            if data:
                if context.get("encoding") == "base64":
                    import base64

                    data = base64.b64decode(data).decode("utf-8", "surrogateescape")
                self._write(context.get("stream"), str(context.get("rank", "")), data)
        elif name == "log":
            level = LOG_LEVELS.get(context.get("level"), "")
            head = f"{self.offset(event):.3f}s: flux-shell[{context.get('rank', 0)}]:"
            parts = [
                head,
                f"{level}:" if level else "",
                f"{context['component']}:" if context.get("component") else "",
            ]
            self._say(" ".join([p for p in parts if p] + [str(context.get("message", ""))]))
        elif name == "redirect" and not self.quiet:
            rank = context.get("rank", "")
            self._say(f"{rank}: {context.get('stream')} redirected to {context.get('path')}")

    def _write(self, stream, rank, data):
        out = self.stderr if stream == "stderr" else self.stdout
        if self.label:
            lines = data.splitlines(keepends=True)
            data = "".join(f"{self.prefix}{rank}: {line}" for line in lines)
        if out is self.stderr:
            self.stdout.flush()
        out.write(data)
        out.flush()


def run_until_done(client, jobid, **options):
    """Follow one job to its end; returns the :class:`Follower`.

    Raises:
        OSError: its events cannot be read
    """
    follower = Follower(client, jobid, lambda _: client.stop(), **options)
    client.run()
    if follower.error is not None:
        raise follower.error
    return follower


def report_end(follower, prefix="flux-job"):
    """Say how the tasks ended, unless well; returns the exit code."""
    if follower.started and not follower.had_output and not follower.detached:
        warn(f"{prefix}: No job output found")
    if follower.status is not None:
        text = end_text(follower.status)
        if text:
            warn(f"{prefix}: {text}")
    return follower.code
