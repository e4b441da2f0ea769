"""What jobs have written (RFC 24): all of it, or as it comes."""

import base64
import errno
from collections import namedtuple

from flux.eventlog import EventLogEvent
from flux.future import FutureExt
from flux.idset import IDset
from flux.job.event import JobException, event_wait, event_watch, event_watch_async
from flux.job.JobID import JobID
from flux.job.kvslookup import job_kvs_lookup

__all__ = [
    "JobExceptionEvent",
    "JobOutput",
    "JobOutputEventWatch",
    "JobOutputWatch",
    "JobOutputWatchLines",
    "LogEvent",
    "OutputEvent",
    "OutputHeaderEvent",
    "RedirectEvent",
    "Taskset",
    "job_output",
    "output_event_watch",
    "output_event_watch_async",
    "output_watch",
    "output_watch_async",
    "output_watch_lines",
    "output_watch_lines_async",
]

#: Level of the least important messages of the job shell.
LOG_TRACE = 6

LOG_LEVELS = {-1: "FATAL", 0: "FATAL", 1: "FATAL", 2: "FATAL", 3: "ERROR", 4: "WARN", 5: "", 6: "DEBUG", 7: "TRACE"}  # fmt: skip

#: What a job has written, as text: on each stream, and the messages of its shell.
JobOutput = namedtuple("JobOutput", ("stdout", "stderr", "log"))


class Taskset:
    """Some tasks of a job, or all of them.

    Args:
        tasks (str or IDset): ``*`` or ``all``, or an idset of task ranks

    Attributes:
        all (bool): all tasks
        ids (IDset): else which; None for all
    """

    def __init__(self, tasks):
        self.all = isinstance(tasks, str) and tasks in ("*", "all")
        self.ids = None if self.all else IDset(tasks)

    def intersect(self, tasks):
        """The tasks that are in both, a Taskset."""
        other = tasks if isinstance(tasks, Taskset) else Taskset(tasks)
        if self.all or other.all:
            return self if other.all else other
        return Taskset(self.ids.intersect(other.ids))

    def __bool__(self):
        return self.all or bool(len(self.ids))

    def __str__(self):
        return "all" if self.all else str(self.ids)


class _Event(EventLogEvent):
    """An event whose context has its values as attributes, too."""

    def __init__(self, entry):
        super().__init__(entry)
        if "rank" in self.context:
            self.rank = Taskset(str(self.context["rank"]))


class OutputEvent(_Event):
    """``data``: attributes rank (Taskset), stream, data (text or None), eof."""

    def __init__(self, entry, labelio=False):
        super().__init__(entry)
        self.stream = self.context["stream"]
        self.eof = self.context.get("eof", False)
        data = self.context.get("data")
        if data is not None:
            if self.context.get("encoding") == "base64":
                data = base64.b64decode(data).decode("utf-8", "surrogateescape")
            data *= self.context.get("repeat", 1)
            if labelio:
                data = "".join(f"{self.rank}: {line}\n" for line in data.splitlines())
        self.data = data

    def render(self):
        return self.data


class LogEvent(_Event):
    """``log``: a message of the job shell; attributes rank, level, message, component, file, line."""

    def __init__(self, entry):
        super().__init__(entry)
        self.level = self.context["level"]
        self.message = self.context["message"]
        self.component = self.context.get("component")
        self.file = self.context.get("file")
        self.line = self.context.get("line", -1)

    def render(self, include_file_and_line=False):
        words = [f"flux-shell[{self.rank}]", LOG_LEVELS.get(self.level, ""), self.component]
        if include_file_and_line and self.file:
            words.append(f"{self.file}:{self.line}")
        return ": ".join([*filter(None, words), self.message])


class OutputHeaderEvent(_Event):
    """``header``: attributes version, and count and encoding of each stream."""

    def __init__(self, entry):
        super().__init__(entry)
        self.version = self.context["version"]
        for stream in ("stdout", "stderr"):
            setattr(self, f"{stream}_count", self.context["count"][stream])
            setattr(self, f"{stream}_encoding", self.context["encoding"][stream])


class RedirectEvent(_Event):
    """``redirect``: attributes rank, stream, and path, where it goes."""

    def __init__(self, entry):
        super().__init__(entry)
        self.stream = self.context["stream"]
        self.path = self.context["path"]

    def render(self):
        return f"{self.rank}: {self.stream} redirected to {self.path}"


class JobExceptionEvent(_Event):
    """``exception`` of the job: attributes severity, exc_type, note."""

    def __init__(self, entry):
        super().__init__(entry)
        self.severity = self.context["severity"]
        self.exc_type = self.context["type"]
        self.note = self.context.get("note", "")

    def render(self):
        text = f"job.exception: type={self.exc_type} severity={self.severity}"
        return f"{text} {self.note}" if self.note else text


_EVENTS = {
    "log": LogEvent,
    "header": OutputHeaderEvent,
    "redirect": RedirectEvent,
    "exception": JobExceptionEvent,
}


def _event(entry, labelio):
    event = EventLogEvent(entry)
    if event.name == "data":
        return OutputEvent(event, labelio)
    if event.name not in _EVENTS:
        raise ValueError(f"event {event.name} is not a supported output event type")
    return _EVENTS[event.name](event)


def job_output(h, jobid, tasks="*", labelio=False, nowait=False, log_stderr_level=LOG_TRACE):
    """Wait for the end of a job's output and return it, a JobOutput.

    Args:
        h (Flux): handle
        jobid: job id, as int or in any encoding
        tasks (str): idset of the tasks whose output is wanted
        labelio (bool): each line begins with the rank of the task
        nowait (bool): return what there is
        log_stderr_level (int): messages of the job shell up to this level belong to ``stderr``

    Raises:
        FileNotFoundError: no such job, or with nowait no output yet
        JobException: the job has not started
    """
    jobid = JobID(jobid)
    if nowait:
        found = job_kvs_lookup(h, jobid, keys=["guest.output"])
        if found is None:
            raise FileNotFoundError(f"job {jobid} does not exist or output not ready")
        entries = found["guest.output"].splitlines()
        wanted = Taskset(tasks)
    else:
        wanted = Taskset(tasks)
        try:
            event_wait(h, jobid, "shell.init", "guest.exec.eventlog")
        except OSError:
            # A job that ended before has an exception that says why.
            event = event_wait(h, jobid, "exception")
            if event.context["severity"] == 0:
                raise JobException(event) from None
            raise
        entries = event_watch(h, jobid, "guest.output")
    texts = {"stdout": [], "stderr": [], "log": []}
    for entry in entries:
        event = _event(entry, labelio)
        if isinstance(event, OutputEvent):
            if event.data and event.rank.intersect(wanted):
                texts[event.stream].append(event.data)
        elif isinstance(event, LogEvent):
            stream = "stderr" if event.level <= log_stderr_level else "log"
            texts[stream].append(event.render())
    return JobOutput(*("".join(parts) for parts in texts.values()))


class JobOutputEventWatch(FutureExt):
    """The events of a job's output, and its exceptions, as they come."""

    def __init__(self, h, jobid, labelio=False, nowait=False):
        self._labelio = labelio
        self._started = self._finished = self._closed = False
        super().__init__(self._begin, JobID(jobid), nowait, flux_handle=h)

    def get_event(self, autoreset=True):
        """Wait for the next event; None at the end."""
        entry = self.get()
        if entry is None:
            return None
        if autoreset:
            self.reset()
        return _event(entry, self._labelio)

    def _begin(self, future, jobid, nowait):
        if nowait:
            self._finished = True
            self._follow_output(jobid)
        else:
            event_watch_async(self.get_flux(), jobid).then(self._job_event, jobid)

    def _next(self, future, missing=None):
        """The event that has come to a watch, or None; a failure is passed on."""
        try:
            return future.get_event()
        except OSError as exc:
            text = missing if exc.errno == errno.ENOENT and missing else exc.strerror
            self.fulfill_error(exc.errno, text)
            self._started = True
            return None

    def _job_event(self, future, jobid):
        event = self._next(future, f"job {jobid} not found")
        if event is None:
            if not self._started:
                self.fulfill_error(errno.EIO, f"job {jobid} never started")
        elif event.name == "exception":
            self.fulfill(event)
        elif event.name == "start":
            self._started = True
            path = "guest.exec.eventlog"
            event_watch_async(self.get_flux(), jobid, path).then(self._shell_event, jobid)
        elif event.name == "finish":
            self._finished = True
            future.cancel(stop=True)
            if self._closed:
                self.fulfill()

    def _shell_event(self, future, jobid):
        event = self._next(future)
        if event is not None and event.name == "shell.init":
            future.cancel(stop=True)
            self._follow_output(jobid)

    def _follow_output(self, jobid):
        event_watch_async(self.get_flux(), jobid, "guest.output").then(self._output_event)

    def _output_event(self, future):
        try:
            event = future.get_event()
        except OSError as exc:
            self.fulfill_error(exc.errno, exc.strerror)
            return
        if event is not None:
            self.fulfill(event)
            return
        self._closed = True
        if self._finished:
            self.fulfill()


class _Pairs(FutureExt):
    """A future of [stream, text] made from those of another future; [None, None] at the end."""

    def __init__(self, source, h, jobid, **options):
        super().__init__(self._begin, source, JobID(jobid), options, flux_handle=h)

    def _begin(self, future, source, jobid, options):
        source(self.get_flux(), jobid, **options).then(self._arrived)

    def _arrived(self, future):
        try:
            self._take(future)
        except OSError as exc:
            self.fulfill_error(exc.errno, exc.strerror)

    def _get_pair(self):
        pair = self.get()
        self.reset()
        return pair


class JobOutputWatch(_Pairs):
    """What a job writes, piece by piece."""

    def __init__(self, h, jobid, labelio=False, log_stderr_level=LOG_TRACE, nowait=False):
        self._level = log_stderr_level
        super().__init__(JobOutputEventWatch, h, jobid, labelio=labelio, nowait=nowait)

    def _take(self, future):
        event = future.get_event()
        if event is None:
            self.fulfill((None, None))
        elif isinstance(event, OutputEvent):
            if event.data is not None:
                self.fulfill((event.stream, event.data))
        elif not isinstance(event, OutputHeaderEvent):
            log = isinstance(event, LogEvent) and event.level > self._level
            self.fulfill(("log" if log else "stderr", event.render() + "\n"))

    def get_output(self):
        """Wait for the next (stream, text); (None, None) at the end."""
        return self._get_pair()


class JobOutputWatchLines(_Pairs):
    """What a job writes, line by line."""

    def __init__(
        self, h, jobid, labelio=False, log_stderr_level=LOG_TRACE, nowait=False, keepends=False
    ):
        self._keepends = keepends
        options = {"labelio": labelio, "log_stderr_level": log_stderr_level, "nowait": nowait}
        super().__init__(JobOutputWatch, h, jobid, **options)

    def _take(self, future):
        stream, text = future.get_output()
        if text is None:
            self.fulfill((None, None))
            return
        for line in text.splitlines(keepends=self._keepends):
            self.fulfill((stream, line))

    def getline(self):
        """Wait for the next (stream, line); (None, None) at the end."""
        return self._get_pair()


def output_event_watch_async(h, jobid, labelio=False, nowait=False):
    """Watch the events of a job's output; returns a future with ``get_event()``.

    Args:
        h (Flux): handle
        jobid: job id, as int or in any encoding
        labelio (bool): each line begins with the rank of the task
        nowait (bool): there is output already: do not wait for the job to start
    """
    return JobOutputEventWatch(h, jobid, labelio, nowait)


def output_watch_async(h, jobid, labelio=False, log_stderr_level=LOG_TRACE, nowait=False):
    """Watch what a job writes; returns a future with ``get_output()``.

    Args:
        h, jobid, labelio, nowait: as for `output_event_watch_async`
        log_stderr_level (int): messages of the job shell up to this level belong to ``stderr``
    """
    return JobOutputWatch(h, jobid, labelio, log_stderr_level, nowait)


def output_watch_lines_async(
    h, jobid, labelio=False, log_stderr_level=LOG_TRACE, nowait=False, keepends=False
):
    """Watch the lines a job writes; returns a future with ``getline()``.

    Args:
        h, jobid, labelio, log_stderr_level, nowait: as for `output_watch_async`
        keepends (bool): lines keep their newline
    """
    return JobOutputWatchLines(h, jobid, labelio, log_stderr_level, nowait, keepends)


def output_event_watch(*args, **kwargs):
    """Yield the events of a job's output; arguments as for `output_event_watch_async`.

    Raises:
        FileNotFoundError: no such job
        OSError: the job has not started (EIO)
    """
    future = output_event_watch_async(*args, **kwargs)
    while (event := future.get_event()) is not None:
        yield event


def output_watch(*args, **kwargs):
    """Yield (stream, text) for what a job writes; arguments as for `output_watch_async`."""
    yield from _until_the_end(output_watch_async(*args, **kwargs).get_output)


def output_watch_lines(*args, **kwargs):
    """Yield (stream, line) for what a job writes; arguments as for `output_watch_lines_async`."""
    yield from _until_the_end(output_watch_lines_async(*args, **kwargs).getline)


def _until_the_end(get):
    while (pair := get())[0] is not None:
        yield pair
