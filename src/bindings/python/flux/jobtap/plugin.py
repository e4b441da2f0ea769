# SPDX-License-Identifier: LGPL-3.0-or-later
"""The API of jobtap plugins in Python: the class `Plugin` (public as ``flux.jobtap.Plugin``)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from syslog import LOG_ERR
from threading import get_ident
from typing import Any, NoReturn

from flux.jobtap import validation
from flux.jobtap.callbacks import CallbackArgs, Handlers, why_never_called
from flux.jobtap.errors import WRONG_THREAD, JobtapError, Rejected
from flux.jobtap.perilogs import FAILED
from flux.jobtap.validation import CURRENT_JOB, PRIORITY_UNAVAIL

FLUX_ROLE_OWNER, FLUX_ROLE_USER = 1, 2

#: The text for a handler None where there is none to remove.
NO_CALLBACK = "expected a function, got None (are there parentheses behind its name?)"


class Plugin:
    """A loaded plugin. It is passed to ``plugin_init(p)`` and to every callback.

    A callback is ``callback(p, topic, args)``. `args` is a deeply immutable mapping. Its keys
    depend on the topic: jobspec, R, id, state, prev_state, userid, urgency, priority, t_submit,
    entry, end_event; ``conf`` in conf.update; ``key``, ``value``, ``updates`` and ``cred`` in
    job.update.KEY. A callback returns None, or a dict with its answer (priority, annotations, R,
    ...). To refuse it raises an exception, or returns False or a negative number.

    `CURRENT_JOB` in place of a job id is the job of the running callback. Unless stated otherwise,
    methods raise OSError: ENOENT for an unknown job; EINVAL for a job in the wrong state, for
    CURRENT_JOB outside a callback, and for every call after the plugin was removed.

    Attributes:
        name (str): file name, such as ``limits.py``
        path (str): full path, ``builtin`` for a builtin plugin
        args (dict): its load arguments
        handle (flux.Flux): the job manager's handle, for RPCs, timers and logging. Its timers and
            RPCs end with the plugin
    """

    def __init__(
        self, host: Any, name: str, path: str, args: dict[str, Any], handle: Any = None
    ) -> None:
        self._job_manager = host
        self._thread = get_ident()
        self.name = name
        self.path = path
        self.args = args
        self.handle = handle
        self.handlers = Handlers()

    #: Checks an event before it is posted.
    _check_event = staticmethod(validation.plugin_event)

    @property
    def _host(self) -> Any:
        # The job manager may only be used from its own thread.
        if get_ident() != self._thread:
            raise OSError(errno.EPERM, f"{self.name}: {WRONG_THREAD}")
        return self._job_manager

    # -- set-up ------------------------------------------------------------------------------------

    def add_handler(
        self, topic: str, callback: Callable[[Plugin, str, CallbackArgs], Any] | None
    ) -> None:
        """Register a callback.

        If several handlers of a plugin match a topic, the first registered is called. A topic that
        the job manager never calls is logged, and a removal where there is no handler.

        Args:
            topic (str): a callback topic, or a glob
            callback: ``callback(p, topic, args)``; None removes the first handler for exactly this
                topic
        """
        why = why_never_called(validation.word(topic, "add_handler: topic"))
        if callback is None:
            why = None if self.handlers.remove(topic) else NO_CALLBACK
        elif callable(callback):
            self.handlers.add(topic, callback)
        else:
            raise TypeError(f"add_handler: the callback for {topic!r} is not callable")
        if why is not None:
            self.handle.log(LOG_ERR, f"jobtap: {self.name}: add_handler: {topic}: {why}")
        self._host.handlers_changed(topic)

    def set_name(self, name: str) -> None:
        """Set the plugin's name in service topics. Default: the file name up to the first dot."""
        if not name or type(name) is not str or "." in name or "/" in name:
            raise OSError(errno.EINVAL, f"set_name: {name!r} cannot be part of a service topic")
        self._host.set_name(validation.word(name, "set_name"))

    def set_load_sort_order(self, mode: str | None) -> None:
        """Set the order in which job.create and job.new are called for jobs that exist when the
        plugin is loaded.

        Args:
            mode (str): ``state``: in the order of a job's states, and by id within a state;
                ``-state``: in reverse order of states; ``none`` or None: in any order
        """
        if mode not in (None, "none", "state", "-state"):
            raise OSError(
                errno.EINVAL, f"set_load_sort_order: {mode!r}: expected 'state', '-state' or 'none'"
            )
        self._host.set_load_sort_order(mode or "none")

    def get_flux(self) -> Any:
        """The job manager's handle."""
        return self.handle

    # -- refusing ----------------------------------------------------------------------------------

    def reject_job(self, text: str | None = None) -> NoReturn:
        """Reject the job, in job.create, job.validate or job.dependency.*. Always raises.

        Args:
            text (str): the reason, for the submitting user
        """
        raise Rejected(str(text) if text else f"rejected by job-manager plugin '{self.name}'")

    def error(self, text: str) -> NoReturn:
        """Refuse, in job.update.KEY or conf.update. Always raises.

        Args:
            text (str): the reason, for the user
        """
        raise JobtapError(str(text))

    # -- jobs --------------------------------------------------------------------------------------

    def job_lookup(self, id: int) -> Mapping[str, Any]:
        """Return the `args` of a callback for an active or inactive job."""
        found: Mapping[str, Any] = self._host.job_lookup(validation.job_id(id))
        return found

    def get_job_result(self, id: int) -> int:
        """Return the result of a job in CLEANUP or INACTIVE: FLUX_JOB_RESULT_COMPLETED (1), FAILED
        (2), CANCELED (4) or TIMEOUT (8)."""
        result: int = self._host.get_job_result(validation.job_id(id))
        return result

    def job_event_posted(self, id: int, name: str) -> bool:
        """Whether an event of this name was ever posted for the job."""
        validation.text(name, "name")
        posted: bool = self._host.job_event_posted(validation.job_id(id), name)
        return posted

    def job_set_flag(self, id: int, flag: str) -> None:
        """Set a flag of a job (``waitable``, ``debug`` or ``alloc-bypass``) with the event
        ``set-flags``.

        With ``alloc-bypass`` a plugin assigns the job's resources, in its answer to
        job.state.sched. It must be set in job.validate.
        """
        self._host.job_set_flag(validation.job_id(id), validation.flag(flag))

    def raise_exception(self, id: int, type: str, severity: int, note: str = "") -> None:
        """Raise an exception on a job. Severity 0 ends the job; severities 1 to 7 are only
        recorded."""
        validation.exception_type(type, "raise_exception: type")
        note = validation.text(note, "note")
        self._host.raise_exception(validation.job_id(id), type, validation.severity(severity), note)

    def event_post(self, id: int, name: str, context: dict[str, Any] | None = None) -> None:
        """Post event `name` with `context` (dict) to a job's eventlog (RFC 18, 21).

        Raises:
            OSError: EINVAL: the context is not representable in JSON, a value is out of range, or
                the event is reserved for the job manager (submit, validate, start, release, free,
                clean) or has its own method (prologs and epilogs). EPROTO: the context lacks a key
                required by RFC 21
        """
        context = self._check_event(name, context)
        self._host.event_post(validation.job_id(id), name, context)

    # -- dependencies ------------------------------------------------------------------------------

    def dependency_add(self, id: int, description: str) -> None:
        """Hold a job in DEPEND until `dependency_remove` with the same description.

        Adding an open dependency again has no effect: a reloaded plugin may do so.

        Raises:
            OSError: EEXIST: it was added and removed before. EINVAL: the job is past DEPEND
        """
        description = validation.text(description, "description")
        self._host.dependency_add(validation.job_id(id), description)

    def dependency_remove(self, id: int, description: str) -> None:
        """Remove a dependency that is met. The job may have reached SCHED on return.

        Raises:
            OSError: ENOENT: the job has no such open dependency
        """
        description = validation.text(description, "description")
        self._host.dependency_remove(validation.job_id(id), description)

    # -- priority ----------------------------------------------------------------------------------

    def priority_unavail(self, args: Any = None) -> dict[str, int]:
        """Return the answer to job.state.priority and job.priority.get while the priority is
        unknown."""
        return {"priority": PRIORITY_UNAVAIL}

    def reprioritize_job(self, id: int, priority: int) -> None:
        """Set the priority of a job in PRIORITY or SCHED.

        No effect on a job that is in another state, held or expedited.

        Args:
            id (int): the job
            priority (int): 0 to 4294967295
        """
        if validation.priority(priority) != PRIORITY_UNAVAIL:
            self._host.reprioritize_job(validation.job_id(id), priority)

    def reprioritize_all(self) -> None:
        """Call job.priority.get for every job in PRIORITY or SCHED."""
        self._host.reprioritize_all()

    # -- jobspec -----------------------------------------------------------------------------------

    def jobspec_update(self, updates: dict[str, Any]) -> None:
        """Update the jobspec of the current job, after the callback has returned.

        Args:
            updates (dict): dotted path, such as ``attributes.system.duration`` -> new value (RFC
                21). All updates of a callback are posted as one event
        """
        self._host.jobspec_update(validation.updates(updates, "jobspec_update"))

    def jobspec_update_id(self, id: int, updates: dict[str, Any]) -> None:
        """Update the jobspec of a job other than the current one; see `jobspec_update`."""
        updates = validation.updates(updates, "jobspec_update_id")
        self._host.jobspec_update_id(validation.job_id(id), updates)

    # -- subscriptions, auxiliary data -------------------------------------------------------------

    def job_subscribe(self, id: int) -> None:
        """Call the job.event.* callbacks for a job, until it is inactive."""
        self._host.job_subscribe(validation.job_id(id))

    def job_unsubscribe(self, id: int) -> None:
        """Undo `job_subscribe`. No effect without such a job or subscription."""
        self._host.job_unsubscribe(validation.job_id(id))

    def job_aux_set(
        self, id: int, name: str, value: Any, free_fn: Callable[[Any], Any] | None = None
    ) -> None:
        """Attach a value to a job.

        Args:
            id (int): the job
            name (str): key of the value, for this plugin
            value: any object
            free_fn: ``free_fn(value)`` is called when the value is removed or replaced, or the job
                is gone
        """
        self._host.job_aux_set(validation.job_id(id), validation.text(name, "name"), value, free_fn)

    def job_aux_get(self, id: int, name: str, default: Any = None) -> Any:
        """Return the value that this plugin attached to a job as `name`, or `default`."""
        return self._host.job_aux_get(validation.job_id(id), validation.text(name, "name"), default)

    def job_aux_delete(self, id: int, name: str) -> None:
        """Remove the value that this plugin attached to a job as `name`, if any."""
        self._host.job_aux_delete(validation.job_id(id), validation.text(name, "name"))

    def job_aux_delete_value(self, id: int, value: Any) -> None:
        """Remove an attached value from a job, identified by the object itself."""
        self._host.job_aux_delete_value(validation.job_id(id), value)

    # -- prolog and epilog -------------------------------------------------------------------------

    def prolog_start(
        self, description: str, id: int = CURRENT_JOB, *, if_removed: int = FAILED
    ) -> None:
        """Keep a job from starting until `prolog_finish` is called.

        If the plugin is removed first, the prolog ends with status `if_removed`; by default it
        fails, and the job does not run. If the function that called `prolog_start` raises, the
        prolog fails in any case.

        Args:
            description (str): description in the job's eventlog, repeated for `prolog_finish`
            id (int): the job
            if_removed (int): wait status if the plugin is removed: 0 lets the job go on, any other
                ends it with an exception

        Raises:
            OSError: EINVAL: the job has started. EOVERFLOW: it has 255 open
        """
        self._perilog_start("prolog", description, id, if_removed)

    def prolog_finish(self, id: int, description: str, status: int) -> None:
        """Report the end of a prolog. The wait status is only recorded."""
        self._perilog_finish(id, "prolog", description, status)

    def epilog_start(
        self, description: str, id: int = CURRENT_JOB, *, if_removed: int = FAILED
    ) -> None:
        """Keep a job in CLEANUP, with its resources, until `epilog_finish` is called, the plugin is
        removed, or the function that called `epilog_start` raises.

        The arguments are those of `prolog_start`. A failed epilog only raises a job exception of
        severity 1.
        """
        self._perilog_start("epilog", description, id, if_removed)

    def epilog_finish(self, id: int, description: str, status: int) -> None:
        """Report the end of an epilog. The wait status is only recorded."""
        self._perilog_finish(id, "epilog", description, status)

    def _perilog_start(self, kind: str, description: str, id: int, if_removed: int) -> None:
        description = validation.text(description, "description")
        status = validation.wait_status(if_removed, f"{kind}_start: if_removed")
        self._host.perilog_start(validation.job_id(id), kind, description, status)

    def _perilog_finish(self, id: int, kind: str, description: str, status: int) -> None:
        validation.text(description, "description")
        validation.wait_status(status, f"{kind}_finish: status")
        self._host.perilog_finish(validation.job_id(id), kind, description, status)

    # -- other plugins, services -------------------------------------------------------------------

    def call(self, id: int, topic: str, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call all plugins' handlers for a topic defined by plugins.

        Args:
            id (int): the job, CURRENT_JOB for the handlers
            topic (str): a topic that does not begin with ``job.``
            args (mapping): arguments of the callbacks; default: those of the job

        Returns:
            dict: the merged answers of the handlers

        Raises:
            OSError: EINVAL: the topic is reserved
            JobtapError: a handler failed
        """
        if validation.word(topic, "call: topic").startswith("job."):
            raise OSError(errno.EINVAL, f"call: topic {topic} is reserved for the job manager")
        answer: dict[str, Any] = self._host.call(validation.job_id(id), topic, args)
        return answer

    def service_register(self, method: str, callback: Callable[[Plugin, Any], Any]) -> None:
        """Serve requests of all users to ``job-manager.NAME.METHOD``.

        Args:
            method (str): METHOD in the topic; NAME is that of the plugin (see `set_name`)
            callback: ``callback(p, msg)``; it responds with ``p.handle.respond``, and returns
                nothing
        """
        self.service_register_ex(method, FLUX_ROLE_OWNER | FLUX_ROLE_USER, callback)

    def service_register_ex(
        self, method: str, rolemask: int, callback: Callable[[Plugin, Any], Any]
    ) -> None:
        """`service_register` for the instance owner and users with a role in `rolemask`.

        Args:
            rolemask (int): FLUX_ROLE_OWNER (1), FLUX_ROLE_USER (2)
        """
        validation.word(method, "service_register: method")
        if not callable(callback):
            raise TypeError(f"service_register: the callback of {method!r} is not callable")

        def serve(p: Plugin, msg: Any) -> None:
            answer = callback(p, msg)
            if answer is not None and not isinstance(answer, int):
                raise TypeError(
                    f"a service answers by p.handle.respond(msg, payload), not by returning {type(answer).__name__}"
                )

        self._host.service_register(method, rolemask | FLUX_ROLE_OWNER, serve)

    def end(self) -> None:
        """Called by the host when the plugin is removed: every later method call raises OSError
        (EINVAL)."""
        self._job_manager = RemovedPluginHost(self.name)


class RemovedPluginHost:
    """The host of a removed plugin: every method raises OSError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> NoReturn:
        raise OSError(errno.EINVAL, f"{method}: plugin {self._name} was removed")


def service_name(name: str) -> str:
    """Return a plugin's default name in service topics: its file name up to the first dot.

    The leading dot of builtin plugins does not count.
    """
    return name.lstrip(".").partition(".")[0]
