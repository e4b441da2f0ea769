# SPDX-License-Identifier: LGPL-3.0-or-later
"""The API of jobtap plugins in Python: the class `Plugin` (public as ``flux.jobtap.Plugin``)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Any, NoReturn

from flux.jobtap import validation
from flux.jobtap.callback_args import CallbackArgs
from flux.jobtap.errors import JobtapError, Rejected
from flux.jobtap.handlers import Handlers
from flux.jobtap.perilogs import FAILED
from flux.jobtap.plugin_resources import WRONG_THREAD
from flux.jobtap.validation import CURRENT_JOB, PRIORITY_UNAVAIL

FLUX_ROLE_OWNER, FLUX_ROLE_USER = 1, 2


class Plugin:
    """A loaded plugin. It is passed to ``plugin_init(p)`` and to every callback.

    A callback is ``callback(p, topic, args)``. `args` is a mapping that cannot be changed at any
    depth. Its keys depend on the topic: jobspec, R, id, state, prev_state, userid, urgency,
    priority, t_submit, entry, end_event; ``conf`` in conf.update; ``key``, ``value``, ``updates``
    and ``cred`` in job.update.KEY. A callback returns None, or a dict with its answer (priority,
    annotations, R, ...). It fails by raising an exception, or by returning False or a negative
    number.

    Wherever a job id is expected, `CURRENT_JOB` stands for the job of the running callback. Unless
    said otherwise a method raises OSError: ENOENT for an unknown job, EINVAL for one in the wrong
    state, for CURRENT_JOB outside of a callback, and for anything once the plugin was removed.

    Attributes:
        name (str): file name, such as ``limits.py``
        path (str): full path, ``builtin`` for a builtin plugin
        args (dict): the arguments that it was loaded with
        handle (flux.Flux): the job manager's handle, for RPCs, timers and logging. Timers and RPCs
            made with it end with the plugin
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

    #: Checks an event that is to be posted.
    _check_event = staticmethod(validation.plugin_event)

    @property
    def _host(self) -> Any:
        # Nothing in the job manager may be used from another thread than its own.
        if get_ident() != self._thread:
            raise OSError(errno.EPERM, f"{self.name}: {WRONG_THREAD}")
        return self._job_manager

    # -- set-up ------------------------------------------------------------------------------------

    def add_handler(
        self, topic: str, callback: Callable[[Plugin, str, CallbackArgs], Any] | None
    ) -> None:
        """Register a callback.

        Of several handlers of a plugin that match a topic, the first that was registered is called.

        Args:
            topic (str): a callback topic, or a glob that matches several
            callback: ``callback(p, topic, args)``; None removes the first handler for exactly this
                topic
        """
        validation.word(topic, "add_handler: topic")
        if callback is None:
            self.handlers.remove(topic)
        elif callable(callback):
            self.handlers.add(topic, callback)
        else:
            raise TypeError(f"add_handler: the callback for {topic!r} is not callable")
        self._host.handlers_changed(self, topic)

    def set_name(self, name: str) -> None:
        """Set the plugin's name in service topics. By default it is the file name up to its first
        dot."""
        if not name or type(name) is not str or "." in name or "/" in name:
            raise OSError(errno.EINVAL, f"set_name: {name!r} cannot be part of a service topic")
        self._host.set_name(self, validation.word(name, "set_name"))

    def set_load_sort_order(self, mode: str | None) -> None:
        """Set the order in which job.create and job.new are called for jobs that exist when the
        plugin is loaded.

        Args:
            mode (str): ``state``: in the order of states that a job goes through, and by id within a
                state; ``-state``: in the reverse order of states; ``none`` or None: in no
                particular order
        """
        if mode not in (None, "none", "state", "-state"):
            raise OSError(
                errno.EINVAL,
                f"set_load_sort_order: {mode!r}: expected 'state', '-state' or 'none'",
            )
        self._host.set_load_sort_order(self, mode or "none")

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
        """Return the `args` of a callback for a job, active or inactive."""
        found: Mapping[str, Any] = self._host.job_lookup(self, validation.job_id(id))
        return found

    def get_job_result(self, id: int) -> int:
        """Return the result of a job in CLEANUP or INACTIVE: FLUX_JOB_RESULT_COMPLETED (1), FAILED
        (2), CANCELED (4) or TIMEOUT (8)."""
        result: int = self._host.get_job_result(self, validation.job_id(id))
        return result

    def job_event_posted(self, id: int, name: str) -> bool:
        """Whether an event of this name was ever posted to the job."""
        validation.text(name, "name")
        posted: bool = self._host.job_event_posted(self, validation.job_id(id), name)
        return posted

    def job_set_flag(self, id: int, flag: str) -> None:
        """Set a flag of a job, ``waitable``, ``debug`` or ``alloc-bypass``, by posting the event
        ``set-flags``.

        ``alloc-bypass`` means that a plugin gives the job its resources, in the answer to
        job.state.sched. It has to be set in job.validate.
        """
        self._host.job_set_flag(self, validation.job_id(id), validation.flag(flag))

    def raise_exception(self, id: int, type: str, severity: int, note: str = "") -> None:
        """Raise an exception on a job. Severity 0 ends the job; severities 1 to 7 are only
        recorded."""
        validation.exception_type(type, "raise_exception: type")
        note = validation.text(note, "note")
        self._host.raise_exception(
            self, validation.job_id(id), type, validation.severity(severity), note
        )

    def event_post(self, id: int, name: str, context: dict[str, Any] | None = None) -> None:
        """Post event `name` with `context` (dict) to a job's eventlog (RFC 18, 21).

        Raises:
            OSError: EINVAL: JSON cannot hold the context, a value is out of range, or it is an
                event that only the job manager posts (submit, validate, start, release, free,
                clean) or that has a method of its own (prologs and epilogs). EPROTO: the context
                lacks a key that RFC 21 requires
        """
        context = self._check_event(name, context)
        self._host.event_post(self, validation.job_id(id), name, context)

    # -- dependencies ------------------------------------------------------------------------------

    def dependency_add(self, id: int, description: str) -> None:
        """Hold a job in DEPEND until `dependency_remove` with the same description.

        A dependency that is open already can be added again, which changes nothing: a plugin that
        is loaded again may do so.

        Raises:
            OSError: EEXIST: it was added before, and has been removed since. EINVAL: the job is
                past DEPEND
        """
        description = validation.text(description, "description")
        self._host.dependency_add(self, validation.job_id(id), description)

    def dependency_remove(self, id: int, description: str) -> None:
        """Remove a dependency, since it is met. The job may have reached SCHED when this returns.

        Raises:
            OSError: ENOENT: the job has no such open dependency
        """
        description = validation.text(description, "description")
        self._host.dependency_remove(self, validation.job_id(id), description)

    # -- priority ----------------------------------------------------------------------------------

    def priority_unavail(self, args: Any = None) -> dict[str, int]:
        """Return the answer of job.state.priority and job.priority.get while the priority is not
        known."""
        return {"priority": PRIORITY_UNAVAIL}

    def reprioritize_job(self, id: int, priority: int) -> None:
        """Set the priority of a job in PRIORITY or SCHED.

        Nothing happens to a job that is in another state, is held, or is expedited.

        Args:
            id (int): the job
            priority (int): 0 to 4294967295
        """
        if validation.priority(priority) != PRIORITY_UNAVAIL:
            self._host.reprioritize_job(self, validation.job_id(id), priority)

    def reprioritize_all(self) -> None:
        """Call job.priority.get for every job in PRIORITY or SCHED."""
        self._host.reprioritize_all(self)

    # -- jobspec -----------------------------------------------------------------------------------

    def jobspec_update(self, updates: dict[str, Any]) -> None:
        """Update the jobspec of the current job. This happens when the callback has returned.

        Args:
            updates (dict): dotted path, such as ``attributes.system.duration`` -> new value (RFC
                21). The updates of several calls in one callback are posted as one event
        """
        self._host.jobspec_update(self, validation.updates(updates, "jobspec_update"))

    def jobspec_update_id(self, id: int, updates: dict[str, Any]) -> None:
        """Update the jobspec of a job other than the current one; see `jobspec_update`."""
        updates = validation.updates(updates, "jobspec_update_id")
        self._host.jobspec_update_id(self, validation.job_id(id), updates)

    # -- subscriptions, auxiliary data -------------------------------------------------------------

    def job_subscribe(self, id: int) -> None:
        """Call the callbacks for job.event.* for a job, until it is inactive."""
        self._host.job_subscribe(self, validation.job_id(id))

    def job_unsubscribe(self, id: int) -> None:
        """Undo `job_subscribe`. Nothing happens if there is no such job or subscription."""
        self._host.job_unsubscribe(self, validation.job_id(id))

    def job_aux_set(
        self, id: int, name: str, value: Any, free_fn: Callable[[Any], Any] | None = None
    ) -> None:
        """Attach a value to a job.

        Args:
            id (int): the job
            name (str): the name under which the plugin finds it again
            value: any object
            free_fn: ``free_fn(value)`` is called when the value is removed or replaced, or the job
                is gone
        """
        self._host.job_aux_set(
            self, validation.job_id(id), validation.text(name, "name"), value, free_fn
        )

    def job_aux_get(self, id: int, name: str, default: Any = None) -> Any:
        """Return the value that this plugin has attached to a job under a name, or `default`."""
        return self._host.job_aux_get(
            self, validation.job_id(id), validation.text(name, "name"), default
        )

    def job_aux_delete(self, id: int, name: str) -> None:
        """Remove the value that this plugin has attached to a job under a name, if there is one."""
        self._host.job_aux_delete(self, validation.job_id(id), validation.text(name, "name"))

    def job_aux_delete_value(self, id: int, value: Any) -> None:
        """Remove an attached value from a job, found by the object itself instead of its name."""
        self._host.job_aux_delete_value(self, validation.job_id(id), value)

    # -- prolog and epilog -------------------------------------------------------------------------

    def prolog_start(
        self, description: str, id: int = CURRENT_JOB, *, if_removed: int = FAILED
    ) -> None:
        """Keep a job from being started until `prolog_finish` is called.

        If the plugin is removed before that, the prolog ends with status `if_removed`; by default it
        has failed, and the job does not run. If the function that has called `prolog_start` raises
        an exception, the prolog has failed in any case.

        Args:
            description (str): for the job's eventlog; `prolog_finish` has the same
            id (int): the job
            if_removed (int): the wait status of the prolog if the plugin is removed: 0 lets the job
                go on, any other ends it with an exception

        Raises:
            OSError: EINVAL: the job was started. EOVERFLOW: it has 255 of them open
        """
        self._perilog_start("prolog", description, id, if_removed)

    def prolog_finish(self, id: int, description: str, status: int) -> None:
        """Say that a prolog has ended. Its wait status is recorded, and has no other effect."""
        self._perilog_finish(id, "prolog", description, status)

    def epilog_start(
        self, description: str, id: int = CURRENT_JOB, *, if_removed: int = FAILED
    ) -> None:
        """Keep a job in CLEANUP, and its resources allocated, until `epilog_finish` is called, the
        plugin is removed, or the function that has called `epilog_start` raises an exception.

        The arguments are those of `prolog_start`. An epilog that has failed only leaves a job
        exception of severity 1.
        """
        self._perilog_start("epilog", description, id, if_removed)

    def epilog_finish(self, id: int, description: str, status: int) -> None:
        """Say that an epilog has ended. Its wait status is recorded, and has no other effect."""
        self._perilog_finish(id, "epilog", description, status)

    def _perilog_start(self, kind: str, description: str, id: int, if_removed: int) -> None:
        description = validation.text(description, "description")
        status = validation.wait_status(if_removed, f"{kind}_start: if_removed")
        self._host.perilog_start(self, validation.job_id(id), kind, description, status)

    def _perilog_finish(self, id: int, kind: str, description: str, status: int) -> None:
        validation.text(description, "description")
        validation.wait_status(status, f"{kind}_finish: status")
        self._host.perilog_finish(self, validation.job_id(id), kind, description, status)

    # -- other plugins, services -------------------------------------------------------------------

    def call(self, id: int, topic: str, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call the handlers of all plugins for a topic that plugins have agreed on.

        Args:
            id (int): the job, which is CURRENT_JOB for the handlers
            topic (str): must not begin with ``job.``
            args (mapping): the arguments of the callbacks; default: those of the job

        Returns:
            dict: the answers of the handlers, merged

        Raises:
            OSError: EINVAL: the topic is reserved
            JobtapError: a handler has failed
        """
        if validation.word(topic, "call: topic").startswith("job."):
            raise OSError(errno.EINVAL, f"call: topic {topic} is reserved for the job manager")
        answer: dict[str, Any] = self._host.call(self, validation.job_id(id), topic, args)
        return answer

    def service_register(self, method: str, callback: Callable[[Plugin, Any], Any]) -> None:
        """Serve requests of all users to ``job-manager.NAME.METHOD``.

        Args:
            method (str): METHOD in the topic; NAME is the plugin's (see `set_name`)
            callback: ``callback(p, msg)``; it answers with ``p.handle.respond``
        """
        self.service_register_ex(method, FLUX_ROLE_OWNER | FLUX_ROLE_USER, callback)

    def service_register_ex(
        self, method: str, rolemask: int, callback: Callable[[Plugin, Any], Any]
    ) -> None:
        """`service_register` for the instance owner, and for users with a role in `rolemask`.

        Args:
            rolemask (int): FLUX_ROLE_OWNER (1), FLUX_ROLE_USER (2)
        """
        validation.word(method, "service_register: method")
        if not callable(callback):
            raise TypeError(f"service_register: the callback of {method!r} is not callable")
        self._host.service_register(self, method, rolemask | FLUX_ROLE_OWNER, callback)

    def end(self) -> None:
        """Called by the host when the plugin is removed. From then on every method raises OSError
        (EINVAL)."""
        self._job_manager = RemovedPluginHost(self.name)


class RemovedPluginHost:
    """Replaces the host of a plugin that was removed: every method raises OSError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> NoReturn:
        raise OSError(errno.EINVAL, f"{method}: plugin {self._name} was removed")


def service_name(name: str) -> str:
    """The default name of a plugin in its service topics: its file name up to the first dot.

    The dot with which the names of builtin plugins begin does not count.
    """
    return name.lstrip(".").partition(".")[0]
