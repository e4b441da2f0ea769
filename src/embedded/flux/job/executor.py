"""Jobs as futures of `concurrent.futures`: a thread of its own submits and watches them."""

import concurrent.futures
import itertools
import logging
import os
import queue
import threading
import weakref

import flux
from flux.job.event import MAIN_EVENTS, JobException, event_watch_async
from flux.job.JobID import JobID
from flux.job.submit import submit_async

__all__ = ["FluxExecutor", "FluxExecutorFuture"]

_log = logging.getLogger(__name__)


class FluxExecutorFuture(concurrent.futures.Future):
    """A job: its result is the exit code of its tasks, or minus the signal that ended them.

    The exception is a JobException if the job was canceled or failed before its tasks ran, and what
    `flux.job.submit` raises if it was refused.  Callbacks are called in the executor's thread, or at
    once for what has happened already.  Methods that add one return the future.

    Args:
        owning_thread_id (int): the thread that completes it, which must not wait for it

    Attributes:
        EVENTS (frozenset): names of the events there are callbacks for
    """

    EVENTS = MAIN_EVENTS

    def __init__(self, owning_thread_id):
        super().__init__()
        self._thread_id = owning_thread_id
        self._known = threading.Condition(threading.RLock())
        self._jobid = None  # the id, or the exception that `jobid` raises
        self._jobid_callbacks = []
        self._seen = []
        self._event_callbacks = {name: [] for name in self.EVENTS}

    def _tell(self, callback, *args):
        try:
            callback(self, *args)
        except Exception:
            _log.exception("exception calling callback for %r", self)

    def set_jobid(self, jobid):
        """For the executor: the job has this id, or there is none for the reason of an exception.

        Raises:
            RuntimeError: it has one
        """
        with self._known:
            if self._jobid is not None:
                raise RuntimeError("invalid state: jobid already set")
            self._jobid = jobid
            self._known.notify_all()
            callbacks, self._jobid_callbacks = self._jobid_callbacks, []
        for callback in callbacks:
            self._tell(callback)

    def set_event(self, event):
        """For the executor: the job has this event; ValueError if there are no callbacks for it."""
        if event.name not in self.EVENTS:
            raise ValueError(event.name)
        with self._known:
            self._seen.append(event)
            callbacks = list(self._event_callbacks[event.name])
        for callback in callbacks:
            self._tell(callback, event)

    def jobid(self, timeout=None):
        """Wait for the job's id, a JobID.

        Args:
            timeout (float): wait at most so many seconds

        Raises:
            concurrent.futures.TimeoutError: it is not there yet
            concurrent.futures.CancelledError: the future was canceled
            RuntimeError: the job could not be submitted
        """
        with self._known:
            if not self._known.wait_for(lambda: self._jobid is not None, timeout):
                raise concurrent.futures.TimeoutError
        if isinstance(self._jobid, BaseException):
            raise self._jobid
        return self._jobid

    def add_jobid_callback(self, callback):
        """Have ``callback(future)`` called when the job has its id."""
        with self._known:
            if self._jobid is None:
                self._jobid_callbacks.append(callback)
                return self
        self._tell(callback)
        return self

    def add_event_callback(self, event, callback):
        """Have ``callback(future, event)`` called for each event of a name; ValueError if not in `EVENTS`."""
        if event not in self.EVENTS:
            raise ValueError(event)
        with self._known:
            self._event_callbacks[event].append(callback)
            seen = [one for one in self._seen if one.name == event]
        for one in seen:
            self._tell(callback, one)
        return self

    def add_done_callback(self, fn):
        """Have ``fn(future)`` called when the future is done."""
        super().add_done_callback(fn)
        return self

    def _check_thread(self):
        if not self.done() and threading.get_ident() == self._thread_id:
            raise RuntimeError("Cannot wait for future from inside callback")

    def result(self, timeout=None):
        """Wait for the result; RuntimeError in a callback, which would wait for itself."""
        self._check_thread()
        return super().result(timeout)

    def exception(self, timeout=None):
        """Wait for the exception, None if there is none; RuntimeError in a callback."""
        self._check_thread()
        return super().exception(timeout)

    def _give_up_jobid(self, reason):
        with self._known:
            if self._jobid is None:
                self.set_jobid(reason)

    def set_exception(self, exception):
        self._give_up_jobid(RuntimeError(f"job could not be submitted due to {exception!r}"))
        super().set_exception(exception)

    def cancel(self):
        """Cancel the future if the executor has not begun with it; jobs are canceled by `flux.job.cancel`."""
        canceled = super().cancel()
        if canceled:
            self._give_up_jobid(concurrent.futures.CancelledError())
        return canceled


class _Worker(threading.Thread):
    """Submits and watches jobs on a handle of its own."""

    def __init__(self, name, handle_args, handle_kwargs):
        super().__init__(name=name, daemon=True)
        self._handle_args = handle_args, handle_kwargs
        self._work = queue.SimpleQueue()
        self._open = set()  # futures of jobs that go on
        self._bell, self._button = os.pipe()
        self._closing = False
        self._ready = threading.Event()
        self.failure = None
        self.start()
        self._ready.wait()
        if self.failure is not None:
            raise self.failure

    def put(self, future, function, *args):
        """Have ``function(future, *args)`` called in the thread."""
        self._work.put((future, function, args))
        os.write(self._button, b"\0")

    def close(self):
        """End when there is nothing left to do."""
        self._closing = True
        os.write(self._button, b"\0")

    def forget(self):
        """Cancel what is not begun."""
        while True:
            try:
                self._work.get_nowait()[0].cancel()
            except queue.Empty:
                return

    def run(self):
        try:
            args, kwargs = self._handle_args
            self.handle = flux.Flux(*args, **kwargs)
            watcher = self.handle.fd_watcher_create(self._bell, self._rung, events=1)
            watcher.start()
        except Exception as exc:
            self.failure = exc
            return
        finally:
            self._ready.set()
        try:
            self.handle.reactor_run()
        except Exception as exc:
            self.failure = exc
            for future in self._open:
                if not future.done():
                    future.set_exception(exc)
            raise
        finally:
            watcher.destroy()

    def _rung(self, handle, watcher, fd, revents, args):
        os.read(fd, 4096)
        while True:
            try:
                future, function, args = self._work.get_nowait()
            except queue.Empty:
                break
            if future.set_running_or_notify_cancel():
                try:
                    function(future, *args)
                    self._open.add(future)
                except Exception as exc:
                    future.set_exception(exc)
        self._check_end()

    def _check_end(self):
        if self._closing and not self._open and self._work.empty():
            self.handle.reactor_stop()

    def _done(self, future):
        self._open.discard(future)
        self._check_end()

    def submit(self, future, args, kwargs):
        """Submit the job of a future."""
        submit_async(self.handle, *args, **kwargs).then(self._submitted, future)

    def attach(self, future, jobid):
        """Watch the job of a future."""
        event_watch_async(self.handle, jobid).then(self._event, future)

    def _submitted(self, submission, future):
        try:
            jobid = submission.get_id()
        except OSError as exc:
            future.set_exception(exc)
            self._done(future)
        else:
            future.set_jobid(jobid)
            self.attach(future, jobid)

    def _event(self, watch, future):
        try:
            event = watch.get_event()
        except OSError as exc:
            unknown = isinstance(exc, FileNotFoundError)
            if not future.done():
                future.set_exception(
                    ValueError("job ID does not match any job") if unknown else exc
                )
            event = None
        if event is None:
            self._done(future)
            return
        if event.name in future.EVENTS:
            future.set_event(event)
        if future.done():
            return
        if event.name == "finish":
            future.set_result(os.waitstatus_to_exitcode(event.context["status"]))
        elif event.name == "exception" and event.context["severity"] == 0:
            future.set_exception(JobException(event))


def _close(workers):
    for worker in workers:
        worker.close()


class FluxExecutor:
    """Submits jobs and gives a FluxExecutorFuture for each.

    As a context manager it waits for all of them at the end of the block.

    Args:
        threads (int): threads that do the work
        thread_name_prefix (str): of their names
        poll_interval (float): accepted for the sake of the signature: nothing is polled
        handle_args (tuple), handle_kwargs (dict): how they open their handles (see `flux.Flux`)

    Raises:
        ValueError: a negative number of threads
        OSError: no instance can be reached
    """

    EVENTS = MAIN_EVENTS
    _numbers = itertools.count()

    def __init__(
        self,
        threads=1,
        thread_name_prefix="",
        poll_interval=0.1,
        handle_args=(),
        handle_kwargs=None,
    ):
        if threads < 0:
            raise ValueError("the number of threads must be > 0")
        prefix = thread_name_prefix or f"{type(self).__name__}-{next(self._numbers)}"
        self._lock = threading.Lock()
        self._shut = False
        self._workers = [
            _Worker(f"{prefix}-{number}", handle_args, handle_kwargs or {})
            for number in range(threads)
        ]
        self._turn = itertools.cycle(self._workers)
        self._finalizer = weakref.finalize(self, _close, self._workers)

    def submit(self, *args, **kwargs):
        """Submit a job; arguments as for `flux.job.submit`, without the handle.

        Raises:
            RuntimeError: after `shutdown`, or when a thread has failed
        """
        return self._begin("submit", args, kwargs)

    def attach(self, jobid):
        """Watch a job that there is; ValueError is the future's exception if there is no such job.

        Raises:
            RuntimeError: after `shutdown`, or when a thread has failed
        """
        jobid = JobID(jobid)
        future = self._begin("attach", jobid)
        future.set_jobid(jobid)
        return future

    def _begin(self, step, *args):
        with self._lock:
            if any(worker.failure for worker in self._workers):
                raise RuntimeError("Executor is broken, new futures cannot be scheduled")
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            worker = next(self._turn)
            future = FluxExecutorFuture(worker.ident)
            worker.put(future, getattr(worker, step), *args)
            return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Take no more jobs.

        Args:
            wait (bool): wait for those there are
            cancel_futures (bool): cancel those that the threads have not begun with
        """
        with self._lock:
            self._shut = True
        if cancel_futures:
            for worker in self._workers:
                worker.forget()
        self._finalizer()
        if wait:
            for worker in self._workers:
                worker.join()

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, tb):
        self.shutdown()
        return False
