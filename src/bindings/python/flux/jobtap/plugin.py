# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a jobtap plugin sees: the class `Plugin` (public as ``flux.jobtap``)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Any, NoReturn

from flux.jobtap import validation
from flux.jobtap.callback_args import CallbackArgs
from flux.jobtap.errors import JobtapError, Rejected
from flux.jobtap.handlers import Handlers
from flux.jobtap.plugin_resources import WRONG_THREAD
from flux.jobtap.validation import CURRENT_JOB, PRIORITY_UNAVAIL

FLUX_ROLE_OWNER, FLUX_ROLE_USER = 1, 2


class Plugin:
    """One loaded plugin, passed to ``plugin_init(p)`` and to every callback.

    A callback is ``callback(p, topic, args)``. `args` is a mapping that cannot be changed, at any depth; which
    keys it has depends on the topic (jobspec, R, id, state, prev_state, userid, urgency, priority, t_submit, entry,
    end_event; ``conf`` in conf.update; ``key``, ``value``, ``updates`` and ``cred`` in job.update.KEY). It returns
    None or a dict of what it has to say (priority, annotations, R, ...), and fails by raising or by returning False
    or a negative number.

    Wherever a job id is expected, `CURRENT_JOB` stands for the job of the running callback. Unless said
    otherwise a method raises OSError: ENOENT for an unknown job, EINVAL for one in the wrong state, for
    CURRENT_JOB outside of a callback, and for anything once the plugin was removed.

    Attributes:
        name (str): file name, such as ``limits.py``
        path (str): full path, ``builtin`` for a builtin plugin
        args (dict): arguments it was loaded with
        handle (flux.Flux): the job manager's handle, for RPCs, timers and logging. Timers and RPCs made with it end
            with the plugin
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

    @property
    def _host(self) -> Any:
        # The job manager is one thread, and nothing in it is made for another.
        if get_ident() != self._thread:
            raise OSError(errno.EPERM, f"{self.name}: {WRONG_THREAD}")
        return self._job_manager

    # -- set-up ------------------------------------------------------------------------------------

    def add_handler(
        self, topic: str, callback: Callable[[Plugin, str, CallbackArgs], Any] | None
    ) -> None:
        """Have ``callback(p, topic, args)`` called for `topic`, a callback topic or a glob of them.

        Of several handlers of one plugin that match a topic, the first that was registered is called. A callback
        of None takes out the first handler for exactly this topic.
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
        """Set the name used in service topics; without one it is the file name up to its first dot."""
        if not name or type(name) is not str or "." in name or "/" in name:
            raise OSError(errno.EINVAL, f"set_name: {name!r} cannot be part of a service topic")
        self._host.set_name(self, validation.word(name, "set_name"))

    def set_load_sort_order(self, mode: str | None) -> None:
        """Order in which job.create and job.new are called for jobs that exist when the plugin loads.

        Args:
            mode (str): ``state`` (by state as a job goes through them, each by id), ``-state`` (the reverse
                order of states), ``none`` or None for no particular order
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

    # -- saying no -------------------------------------------------------------------------------------

    def reject_job(self, text: str | None = None) -> NoReturn:
        """Reject the job: from job.create, job.validate and job.dependency.*. Always raises."""
        raise Rejected(str(text) if text else f"rejected by job-manager plugin '{self.name}'")

    def error(self, text: str) -> NoReturn:
        """Fail with a text for the user: from job.update.KEY, conf.update. Always raises."""
        raise JobtapError(str(text))

    # -- jobs -----------------------------------------------------------------------------------------

    def job_lookup(self, id: int) -> Mapping[str, Any]:
        """The args mapping of a job, active or inactive."""
        found: Mapping[str, Any] = self._host.job_lookup(self, validation.job_id(id))
        return found

    def get_job_result(self, id: int) -> int:
        """Result of a job in CLEANUP or INACTIVE: FLUX_JOB_RESULT_COMPLETED (1), FAILED (2), CANCELED (4)
        or TIMEOUT (8)."""
        result: int = self._host.get_job_result(self, validation.job_id(id))
        return result

    def job_event_posted(self, id: int, name: str) -> bool:
        """Whether an event `name` was ever posted to the job."""
        validation.text(name, "name")
        posted: bool = self._host.job_event_posted(self, validation.job_id(id), name)
        return posted

    def job_set_flag(self, id: int, flag: str) -> None:
        """Set a flag of a job, ``waitable``, ``debug`` or ``alloc-bypass``: posts ``set-flags``.

        ``alloc-bypass`` says that the job gets its resources from a plugin, in the answer to job.state.sched; set it
        in job.validate.
        """
        self._host.job_set_flag(self, validation.job_id(id), validation.flag(flag))

    def raise_exception(self, id: int, type: str, severity: int, note: str = "") -> None:
        """Raise an exception on a job; severity 0 ends it, 1 to 7 is only recorded."""
        validation.word(type, "raise_exception: type")
        note = validation.text(note, "note")
        self._host.raise_exception(
            self, validation.job_id(id), type, validation.severity(severity), note
        )

    def event_post(self, id: int, name: str, context: dict[str, Any] | None = None) -> None:
        """Post event `name` with `context` (dict) to a job's eventlog (RFC 18, 21).

        Raises:
            OSError: EINVAL: the context cannot be JSON, or has a value out of range. EPROTO: it lacks what RFC 21
                requires of such an event
        """
        context = validation.event(name, context)
        self._host.event_post(self, validation.job_id(id), name, context)

    # -- dependencies ------------------------------------------------------------------------------------

    def dependency_add(self, id: int, description: str) -> None:
        """Hold a job in DEPEND until `dependency_remove` with the same description.

        Adding one that is open already changes nothing, so that a plugin that is loaded again may do so.

        Raises:
            OSError: EEXIST it was added before and removed since; EINVAL the job is past DEPEND
        """
        description = validation.text(description, "description")
        self._host.dependency_add(self, validation.job_id(id), description)

    def dependency_remove(self, id: int, description: str) -> None:
        """A dependency is met. If the job is idle, it may have reached SCHED when this returns.

        Raises:
            OSError: ENOENT there is no such open dependency
        """
        description = validation.text(description, "description")
        self._host.dependency_remove(self, validation.job_id(id), description)

    # -- priority ------------------------------------------------------------------------------------------

    def priority_unavail(self, args: Any = None) -> dict[str, int]:
        """What job.state.priority and job.priority.get return when there is no priority yet."""
        return {"priority": PRIORITY_UNAVAIL}

    def reprioritize_job(self, id: int, priority: int) -> None:
        """Set the priority of a job in PRIORITY or SCHED (int, 0 to 4294967295).

        Nothing happens to a job that is in another state, held or expedited.
        """
        if validation.priority(priority) != PRIORITY_UNAVAIL:
            self._host.reprioritize_job(self, validation.job_id(id), priority)

    def reprioritize_all(self) -> None:
        """Call job.priority.get for every job in PRIORITY or SCHED."""
        self._host.reprioritize_all(self)

    # -- jobspec -------------------------------------------------------------------------------------------

    def jobspec_update(self, updates: dict[str, Any]) -> None:
        """Update the jobspec of the current job, when the callback has returned.

        Args:
            updates (dict): dotted path, such as ``attributes.system.duration``, to value (RFC 21); further calls in
                the same callback add to it, and one event is posted
        """
        self._host.jobspec_update(self, validation.updates(updates, "jobspec_update"))

    def jobspec_update_id(self, id: int, updates: dict[str, Any]) -> None:
        """Update the jobspec of a job that is not the current one; see `jobspec_update`."""
        updates = validation.updates(updates, "jobspec_update_id")
        self._host.jobspec_update_id(self, validation.job_id(id), updates)

    # -- subscriptions, auxiliary data -----------------------------------------------------------------------

    def job_subscribe(self, id: int) -> None:
        """Receive job.event.* callbacks for a job, until it is inactive."""
        self._host.job_subscribe(self, validation.job_id(id))

    def job_unsubscribe(self, id: int) -> None:
        """Undo `job_subscribe`; nothing happens if there is no such job or subscription."""
        self._host.job_unsubscribe(self, validation.job_id(id))

    def job_aux_set(
        self, id: int, name: str, value: Any, free_fn: Callable[[Any], Any] | None = None
    ) -> None:
        """Attach `value` to a job under `name`; ``free_fn(value)`` is called when it goes."""
        self._host.job_aux_set(
            self, validation.job_id(id), validation.text(name, "name"), value, free_fn
        )

    def job_aux_get(self, id: int, name: str, default: Any = None) -> Any:
        """What this plugin attached to a job under `name`, or `default`."""
        return self._host.job_aux_get(
            self, validation.job_id(id), validation.text(name, "name"), default
        )

    def job_aux_delete(self, id: int, name: str) -> None:
        """Remove what is attached to a job under `name`, if there is anything."""
        self._host.job_aux_delete(self, validation.job_id(id), validation.text(name, "name"))

    def job_aux_delete_value(self, id: int, value: Any) -> None:
        """Remove `value` (this very object) from a job, whatever its name."""
        self._host.job_aux_delete_value(self, validation.job_id(id), value)

    # -- prolog and epilog -------------------------------------------------------------------------------------

    def prolog_start(self, description: str, id: int = CURRENT_JOB) -> None:
        """Keep the job from being started until `prolog_finish`."""
        description = validation.text(description, "description")
        self._host.perilog_start(self, validation.job_id(id), "prolog", description)

    def prolog_finish(self, id: int, description: str, status: int) -> None:
        """A prolog has ended with a wait status, which is recorded and has no other effect."""
        self._perilog_finish(id, "prolog", description, status)

    def epilog_start(self, description: str, id: int = CURRENT_JOB) -> None:
        """Keep a job in CLEANUP from ending, and its resources from being freed, until `epilog_finish`."""
        description = validation.text(description, "description")
        self._host.perilog_start(self, validation.job_id(id), "epilog", description)

    def epilog_finish(self, id: int, description: str, status: int) -> None:
        """An epilog has ended with a wait status, which is recorded and has no other effect."""
        self._perilog_finish(id, "epilog", description, status)

    def _perilog_finish(self, id: int, kind: str, description: str, status: int) -> None:
        validation.text(description, "description")
        if type(status) is not int or not -(1 << 31) <= status < 1 << 31:
            raise OSError(errno.EINVAL, f"{kind}_finish: status={status!r}: expected an integer")
        self._host.perilog_finish(self, validation.job_id(id), kind, description, status)

    # -- other plugins, services ---------------------------------------------------------------------------------

    def call(self, id: int, topic: str, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call the handlers that all plugins have for a topic of your own.

        Args:
            id: the job; the handlers' CURRENT_JOB
            topic (str): must not begin with ``job.``
            args (mapping): passed on as it is; default: the args of the job

        Returns:
            dict: what the handlers returned, merged

        Raises:
            OSError: EINVAL, the topic is reserved
            JobtapError: a handler failed
        """
        if validation.word(topic, "call: topic").startswith("job."):
            raise OSError(errno.EINVAL, f"call: topic {topic} is reserved for the job manager")
        answer: dict[str, Any] = self._host.call(self, validation.job_id(id), topic, args)
        return answer

    def service_register(self, method: str, callback: Callable[[Plugin, Any], Any]) -> None:
        """Serve ``job-manager.NAME.METHOD`` for all users: ``callback(p, msg)`` answers with
        ``p.handle.respond``."""
        self.service_register_ex(method, FLUX_ROLE_OWNER | FLUX_ROLE_USER, callback)

    def service_register_ex(
        self, method: str, rolemask: int, callback: Callable[[Plugin, Any], Any]
    ) -> None:
        """`service_register` for users with a role in `rolemask` (FLUX_ROLE_OWNER 1, FLUX_ROLE_USER 2)."""
        validation.word(method, "service_register: method")
        if not callable(callback):
            raise TypeError(f"service_register: the callback of {method!r} is not callable")
        self._host.service_register(self, method, rolemask | FLUX_ROLE_OWNER, callback)

    def end(self) -> None:
        """Called by the host when the plugin is removed: from now on every method fails."""
        self._job_manager = Removed(self.name)


class Removed:
    """The host of a plugin that was removed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> NoReturn:
        raise OSError(errno.EINVAL, f"{method}: plugin {self._name} was removed")


def service_name(name: str) -> str:
    """The part of a plugin's service topics that stands for the plugin: its file name up to the first dot.

    A builtin plugin's name begins with one.
    """
    return name.lstrip(".").partition(".")[0]
