"""A task: a listener with a reactor, running in a greenlet of its own.

Builtin services and broker modules are tasks; so is an outside program that opened a handle.
Arriving items wait in `Task.inbox` while the task is busy or blocked in a ``get()``; its reactor
handles them in order of arrival, one at a time.
"""

from greenlet import getcurrent, greenlet

from flux_engine.kernel.listener import GUEST_REFUSED, Listener

__all__ = ["GUEST_REFUSED", "REACTOR_NOWAIT", "REACTOR_ONCE", "Task"]

#: Flags of `Task.reactor_run`: do not wait; end after the first item.
REACTOR_NOWAIT, REACTOR_ONCE = 1, 2


class Task(Listener):
    """A listener whose code runs in a greenlet and may block.

    Args:
        kernel (Kernel): the kernel it belongs to
        name (str): module or service name
        body: None for a task that lives in the calling greenlet (an outside program, a test), else
            ``body()``, which is run by `start`

    Attributes:
        is_service (bool): it is a builtin service, where only plugins use the bindings: they do not run or stop its reactor
        on_exit: None, or ``on_exit(task, exception_or_None)``, called when the body returned
    """

    is_service = False

    def __init__(self, kernel, name, body=None, **credentials):
        super().__init__(kernel, name, **credentials)
        self.on_exit = None
        self._listening = False
        self._reactor = None
        self._body = body
        #: Whether `reactor_run` ends when no callback is possible any more; that of a module does not, since requests may arrive.
        self.runs_dry = body is None
        self.greenlet = getcurrent() if body is None else None

    # -- life ----------------------------------------------------------------------------------

    def start(self):
        """Run the body in the next turn of the loop."""
        self.greenlet = greenlet(self._run_body, parent=self.kernel.hub)
        self.greenlet.task = self
        self.kernel.resume(self.greenlet)

    def _run_body(self):
        self.kernel.running = self
        failure = None
        try:
            self._body()
        except (Exception, SystemExit) as exc:  # a module's exception must not end the kernel
            failure = exc
        self.kernel.running = None
        if self.on_exit is not None:
            self.on_exit(self, failure)

    def clone(self):
        """A task of the same name and credentials in the greenlet that calls, with a reactor of its own."""
        return Task(self.kernel, self.name, userid=self.userid, rolemask=self.rolemask)

    def post(self, item):
        """Queue `item` for the reactor: a message, or a function to call."""
        self.inbox.append(item)
        if self._listening:
            if getcurrent() is self.kernel.hub:
                self._listening = False
                self.kernel.running = self
                self.greenlet.switch()
                self.kernel.running = None
            else:
                # Another task posts: it goes on first; the loop resumes this one later.
                self._listening = False
                self.kernel.resume(self.greenlet)

    # -- the reactor ---------------------------------------------------------------------------

    def reactor_run(self, flags=0):
        """Handle items until `reactor_stop`; see the handle's method of this name."""
        if self._body is None:
            # An outside program may have made the handle in one thread, and use it in another.
            self.greenlet = getcurrent()
        outer, self._reactor = self._reactor, []
        stopped = self._reactor
        inbox = self.inbox
        if flags & REACTOR_NOWAIT:
            # After the loop has polled its descriptors and called their callbacks.
            self.kernel.call_later(
                0, lambda: self.kernel.call_soon(lambda: self.post(lambda: stopped.append(0)))
            )
        try:
            while True:  # not "while not stopped": Python 3.11 does not optimize a loop that jumps back on a condition
                if stopped:
                    break
                if inbox:
                    self.dispatch(inbox.popleft())
                    if flags & REACTOR_ONCE:
                        stopped.append(0)
                elif self.runs_dry and not self.is_awaiting():
                    return 0
                else:
                    self._listen()
        finally:
            self._reactor = outer
        if stopped[0] < 0:
            return -1
        return sum(1 for watcher in self.watchers if watcher.counted)

    def _listen(self):
        """Wait until something is posted."""
        self._listening = True
        self.kernel.switch_to_hub()
        self.kernel.running = self
        self._listening = False

    def is_awaiting(self):
        """Whether there is a watcher or a future's callback left for the reactor to call."""
        waits = any(watcher.holds_reactor for watcher in self.watchers)
        return waits or self.callbacks > 0

    def reactor_stop(self, code=0):
        if self._reactor is not None:
            self._reactor.append(code)

    def shut_down(self):
        """End it, on the request ``shutdown``."""
        self.reactor_stop(0)


def inside_handle():
    """The handle of the module or service that runs in this greenlet, or None."""
    task = getattr(getcurrent(), "task", None)
    return task.handle if task is not None else None
