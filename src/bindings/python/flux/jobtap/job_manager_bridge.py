# SPDX-License-Identifier: LGPL-3.0-or-later
"""The bridge between Python plugins and the job manager of a real Flux, imported only by
``python.so``.

C code (src/jobtap/python.c) calls the five functions at the end of this module. Plugins use the API
in `flux.jobtap.plugin`; `PluginHost` implements it with the job manager's C functions.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from syslog import LOG_DEBUG, LOG_ERR
from typing import Any

from _flux_jobtap import ffi, lib
from _flux_jobtap_values import everything, fetch, forget_jobspecs, keys, set_types

from _flux._core import ffi as core_ffi
from _flux._core import lib as core_lib
from flux.jobtap import (
    perilogs,
    plugin_file,
    process_guard,
    thread_guard,
    validation,
)
from flux.jobtap.callbacks import CallbackArgs, FrozenDict, FrozenList, drop_ignored, read_answer
from flux.jobtap.errors import (
    BAD_ANNOTATIONS,
    FAILURES,
    R_WITHOUT_BYPASS,
    JobtapError,
    brief,
    can_fail,
    describe,
    describe_for_log,
    trace,
)
from flux.jobtap.perilogs import Perilog, Perilogs
from flux.jobtap.plugin import Plugin, service_name
from flux.jobtap.plugin_handle import PluginHandle, PluginResources, PostCounts, drop_future
from flux.jobtap.validation import CURRENT_JOB, PRIORITY_UNAVAIL
from flux.message import Message
from flux_engine.formats.states import DEPEND, INACTIVE, NEW, PRIORITY, PRIORITY_MAX, RUN

#: The C value of an unknown priority (FLUX_JOBTAP_PRIORITY_UNAVAIL).
C_PRIORITY_UNAVAIL = -2

_loaded: dict[int, PluginHost] = {}  # key -> PluginHost
#: number -> (PluginHost, callback, topic)
_services: dict[int, tuple[PluginHost, Callable[..., Any], str]] = {}
_numbers = iter(range(1, 1 << 62))
#: Jobs submitted earlier may have dependencies, prologs and epilogs from before a restart.
_STARTED = time.time()
_running: list[RunningCallback] = []  # RunningCallbacks of the running callbacks, innermost last

set_types(FrozenDict, FrozenList)


class JobTable(dict[int, Any]):
    """Data by job id; the data of ended jobs are dropped from time to time."""

    limit = 10000  # the size at which that is due

    def of(self, id: int, make: Callable[[], Any], is_active: Callable[[int], bool]) -> Any:
        """Return the data of a job, made if there are none."""
        if id not in self:
            if len(self) >= self.limit:
                for other in [other for other in self if not is_active(other)]:
                    del self[other]
                self.limit = max(JobTable.limit, 2 * len(self))
            self[id] = make()
        return self[id]


_dependencies = JobTable()  # see _dependencies_of


def _dependencies_of(id: int, state: int) -> dict[str, bool]:
    """Return the dependencies that plugins have added to a job: description -> whether it is open.
    C processes these events later if the job is in a callback or was just submitted, and if one
    fails drops all that are queued: the job would hang."""
    if state not in (NEW, DEPEND):
        raise OSError(errno.EINVAL, _DEPEND[errno.EINVAL])
    return _dependencies.get(id, {})


class ArgsSource:
    """The arguments of a callback in C."""

    __slots__ = ("pointer", "_keys")

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer  # address of the ``flux_plugin_arg_t``

    def fetch(self, key: str) -> Any:
        return fetch(self.pointer, key)

    def keys(self) -> Any:
        return keys(self.pointer)


class UpdateArgsSource(ArgsSource):
    """The arguments of a callback for job.update.KEY. C has only ``key`` and ``value``; the
    documented ``updates`` is added."""

    __slots__ = ()

    def fetch(self, key: str) -> Any:
        if key == "updates":
            return FrozenDict({fetch(self.pointer, "key"): fetch(self.pointer, "value")})
        return fetch(self.pointer, key)

    def keys(self) -> Any:
        return [*keys(self.pointer), "updates"]


class RunningCallback:
    """A running callback, and its answer to C."""

    __slots__ = ("host", "topic", "args", "updates")

    def __init__(self, host: PluginHost, topic: str, args: Any) -> None:
        self.host = host
        self.topic = topic
        self.args = args  # its ``flux_plugin_arg_t``
        self.updates: dict[str, Any] = {}  # the jobspec updates that it requested

    def run(self, callback: Callable[..., Any]) -> int:
        """Call the callback. Return 0, or -1 for a refusal, as C expects."""
        host, topic, plugin = self.host, self.topic, self.host.plugin
        source = UpdateArgsSource if topic.startswith("job.update.") else ArgsSource
        view = CallbackArgs(source(args_address(self.args)))
        _running.append(self)
        try:
            with host.perilogs.call(f"{plugin.name}: {topic}"):
                answer = callback(plugin, topic, view)
                process_guard.end_child()
                if answer is not None:
                    answer = read_answer(answer, topic, plugin.name)
                    if answer:
                        self._answer(view, answer)
                if self.updates:
                    # Deferred until the callback has returned: the job manager collects updates and
                    # applies them to the job of the next successful callback. Those of a failed
                    # callback would reach another job.
                    text = json.dumps(self.updates).encode()
                    _check(lib.jobtap_jobspec_update(host.p, 1, 0, text), _UPDATE)
            return 0
        except FAILURES as exc:
            return self._failed(exc)
        finally:
            _running.pop()
            # Two of the references belong here: `view`, and the argument of getrefcount().
            view.release(sys.getrefcount(view) > 2)

    def _failed(self, exc: BaseException) -> int:
        topic, name = self.topic, self.host.name
        # The job manager's answer to a query that fails has no text: it is in the log only.
        told = can_fail(topic) and topic != "plugin.query"
        if not (told and isinstance(exc, JobtapError)):
            self.host.report(topic, exc)
        if not can_fail(topic):
            return 0
        text = brief(exc)
        if not isinstance(exc, JobtapError):
            text = f"{name}: {topic}: {text}"
        elif topic == "conf.update" and name not in text:
            text = f"{name}: {text}"
        return lib.jobtap_error(self.host.p, self.args, text.encode(errors="replace"))

    def _answer(self, view: Any, answer: dict[str, Any]) -> None:
        topic = self.topic
        ignored = drop_ignored(answer, topic)
        if ignored is not None:
            self.host.report(topic, JobtapError(ignored))
        if "priority" in answer and topic.startswith("job."):
            priority = answer["priority"]
            if not validation.is_priority(priority):
                self._not_a_priority(view, priority)
                answer["priority"] = priority = PRIORITY_UNAVAIL
            if priority == PRIORITY_UNAVAIL:
                answer["priority"] = priority = C_PRIORITY_UNAVAIL
            if len(answer) == 1:
                _check(lib.jobtap_answer_priority(self.args, priority))
                return
        if topic.startswith("job.") and not isinstance(answer.get("annotations", {}), dict):
            self.host.report(topic, JobtapError(BAD_ANNOTATIONS))
            del answer["annotations"]
        if topic.startswith("job.update."):
            for key in ("validated", "feasibility"):
                if key in answer:
                    answer[key] = int(bool(answer[key]))
            if answer.get("updates"):
                validation.updates(answer["updates"], "updates in the answer")
        if "R" in answer and topic == "job.state.sched":
            self.host.take_R(view["id"], answer["R"])
        _check(lib.jobtap_answer(self.args, json.dumps(answer).encode()))

    def _not_a_priority(self, view: Any, priority: Any) -> None:
        host, topic = self.host, self.topic
        text = f"{priority!r} is not a priority (0-{PRIORITY_MAX})"
        host.report(topic, JobtapError(text))
        told = topic != "job.priority.get" and view["state"] != INACTIVE
        if type(priority) is not int and told:
            stuck = " (job may be stuck in PRIORITY state)" if view["state"] == PRIORITY else ""
            host.raise_exception(view["id"], topic, 4, f"{host.name}: {text}{stuck}")


class PluginHost:
    """A loaded plugin, and the job manager's functions for it."""

    def __init__(self, p: Any, key: int) -> None:
        self.p = p  # the ``flux_plugin_t`` of the plugin
        self.key = key  # the number that identifies the plugin in C
        self.plugin: Any = None  # a Plugin, until it is unloaded
        self.error: str | None = None
        #: the name in messages: the plugin's, or its file's before there is a plugin
        self.name = self.basename = os.path.basename(_string(lib.flux_plugin_get_path(p)))
        self._registered = {"conf.update"}
        #: (job, name) -> its entry, whose ffi handle is kept alive
        self.aux: dict[tuple[int, str], AuxEntry] = {}
        self.perilogs = Perilogs(self._finish, lambda text: self.log(LOG_ERR, f"jobtap: {text}"))
        self._numbers: list[int] = []
        self._flags = JobTable()  # the flags set by this plugin
        self._posts = PostCounts()
        #: exceptions to raise on new jobs once they are validated: [(type, note)]
        self._late = JobTable()
        self.h = lib.flux_jobtap_get_flux(p)
        pointer = int(ffi.cast("uintptr_t", self.h))
        self.plugin_resources = PluginResources(
            self.basename, self.report, lambda: self.perilogs.call(f"{self.name}: callback")
        )
        self.handle = PluginHandle(pointer, self.plugin_resources)
        self._reactor = core_lib.flux_get_reactor(self.handle.handle)

    def load(self) -> None:
        """Run the plugin's file and its ``plugin_init``.

        An error is kept until C calls the handler for conf.update, the only one whose error the
        user sees.
        """
        try:
            path, args = _find(self.p, self.basename)
            self.plugin = plugin = Plugin(
                self, os.path.basename(path), path, args, handle=self.handle
            )
            self.name = self.plugin_resources.name = plugin.name
            self.set_name(service_name(plugin.name))
            with self.perilogs.call(f"{plugin.name}: plugin_init"):
                answer = plugin_file.run_plugin_file(path)(plugin)
            read_answer(answer, "plugin_init", plugin.name)
        except FAILURES as exc:
            text = describe(exc, self.plugin.path if self.plugin else None)
            self.log(LOG_DEBUG, trace(exc))
            self.error = text if self.name in text else f"{self.name}: {text}"
        # python.so caches jobspecs. At least one plugin must be called when a jobspec changes, to
        # clear the cache (see python_call).
        self._register("job.update")

    def take_R(self, id: int, R: Any) -> None:
        """Store the resources that a plugin assigned to a job, and post the alloc event in the
        scheduler's place."""
        known = self._flags.get(id)
        posted = lib.flux_jobtap_job_event_posted(self.p, id, b"set-flags") == 1
        if not (known and "alloc-bypass" in known) and (known is not None or not posted):
            raise JobtapError(R_WITHOUT_BYPASS)
        if not (
            isinstance(R, dict) and R.get("version") == 1 and isinstance(R.get("execution"), dict)
        ):
            self.raise_exception(id, "alloc", 0, "a plugin assigned something that is not an R")
            return

        def committed(future: Any) -> None:
            try:
                future.get()
                self.event_post(id, "alloc", {"bypass": True})
            except OSError as exc:
                note = f"the resources from {self.name} cannot be assigned: {exc.strerror}"
                self.raise_exception(id, "alloc", 0, note)

        import flux.job
        import flux.kvs

        txn = flux.kvs.KVSTxn(self.handle, flux.job.JobID(id).kvs)
        txn.put("R", R)
        future = self.plugin_resources.add_future(txn.commit_async())
        future.then(self.plugin_resources.guarded(committed, "commit of R"))

    def report(self, where: str, exc: BaseException) -> None:
        """Log a plugin's exception: one line at level err, and the traceback at level debug."""
        path = self.plugin and self.plugin.path
        callback = self.plugin and self.plugin.handlers.find(where)
        text = describe_for_log(exc, path, callback)
        self.log(LOG_ERR, f"jobtap: {self.name}: {where}: {text}")
        self.log(LOG_DEBUG, trace(exc))

    def log(self, level: int, text: str) -> None:
        for line in text.splitlines():
            lib.jobtap_log(self.h, level, line.encode(errors="replace"))

    # -- calls from Plugin -------------------------------------------------------------------------

    def handlers_changed(self, topic: str) -> None:
        needed = ("conf.update", "job.update", "job.state.depend")
        if topic in needed or self.plugin.handlers.exactly(topic):
            self._register(topic)
        elif topic in self._registered:
            self._registered.discard(topic)
            lib.flux_plugin_remove_handler(self.p, topic.encode())

    def _register(self, topic: str) -> None:
        if topic not in self._registered:
            _check(lib.jobtap_add_handler(self.p, topic.encode(), self.key))
            self._registered.add(topic)

    def set_name(self, name: str) -> None:
        _check(lib.flux_plugin_set_name(self.p, name.encode()))
        self._service_name = name

    def set_load_sort_order(self, mode: str) -> None:
        _check(lib.flux_jobtap_set_load_sort_order(self.p, mode.encode()))

    def _id(self, id: int) -> int:
        """Return the id of a job, with CURRENT_JOB resolved, which some C functions do not
        accept."""
        if id != CURRENT_JOB:
            return id
        current = lib.jobtap_id(_running[-1].args) if _running else -1
        if current < 0:
            raise OSError(errno.EINVAL, "CURRENT_JOB: not in a callback for a job")
        return current

    def job_lookup(self, id: int) -> CallbackArgs:
        args = lib.flux_jobtap_job_lookup(self.p, self._id(id))
        if args == ffi.NULL:
            raise _error("unknown job id")
        try:
            return CallbackArgs(None, everything(args_address(args), 0))
        finally:
            lib.flux_plugin_arg_destroy(args)

    def _lookup(self, id: int, key: str) -> Any:
        args = lib.flux_jobtap_job_lookup(self.p, id)
        if args == ffi.NULL:
            raise _error("unknown job id")
        try:
            return fetch(args_address(args), key)
        finally:
            lib.flux_plugin_arg_destroy(args)

    def get_job_result(self, id: int) -> int:
        result = lib.jobtap_result(self.p, self._id(id))
        _check(result, _RESULT)
        return result

    def job_event_posted(self, id: int, name: str) -> bool:
        id = self._id(id)
        ffi.errno = 0
        answer = lib.flux_jobtap_job_event_posted(self.p, id, name.encode())
        if answer < 0:
            self._lookup(id, "state")  # ENOENT; otherwise no job ever had an event of that name
        return answer == 1

    def job_set_flag(self, id: int, flag: str) -> None:
        id = self._id(id)
        texts = {errno.EINVAL: f"job_set_flag: this flux-core has no flag {flag!r}", **_JOB}
        _check(lib.flux_jobtap_job_set_flag(self.p, id, flag.encode()), texts)
        self._flags.of(id, set, self._is_active).add(flag)

    def _is_active(self, id: int) -> bool:
        try:
            return self._lookup(id, "state") != INACTIVE
        except OSError:
            return False

    def raise_exception(self, id: int, type: str, severity: int, note: str) -> None:
        id = self._id(id)
        if severity == 0 and self._lookup(id, "state") == NEW:
            # The job manager refuses a severe exception on a job that is not validated yet. It is
            # raised afterwards (RFC 21).
            self._late.of(id, list, self._is_active).append((type, note))
            self._register("job.state.depend")
            return
        self._count(id, "exception")
        rc = lib.jobtap_raise_exception(self.p, id, type.encode(), severity, note.encode())
        _check(rc, _JOB)

    def depend(self, args: Any) -> None:
        """Raise the exceptions delayed until the job is validated."""
        id = lib.jobtap_id(args)
        for type, note in self._late.pop(id, ()):
            lib.jobtap_raise_exception(self.p, id, type.encode(), 0, note.encode())

    def event_post(self, id: int, name: str, context: dict[str, Any] | None) -> None:
        text = json.dumps(context).encode() if context else ffi.NULL
        id = self._id(id)
        if name == "resource-update" and context:
            has_R = self._lookup(id, "state") >= RUN
            validation.resource_update(has_R, context["expiration"], time.time())
        self._count(id, name)
        _check(lib.jobtap_event_post(self.p, id, name.encode(), text), _JOB)

    def _count(self, id: int, name: str) -> None:
        """Count an event posted by the plugin. Raises OSError (ELOOP) if it posts without end."""
        # The reactor's clock stands still within a turn.
        turn = core_lib.flux_reactor_now(self._reactor)
        self._posts.count(turn, self.plugin.name, name, id)

    def dependency_add(self, id: int, description: str) -> None:
        id = self._id(id)
        known = _dependencies_of(id, self._lookup(id, "state"))
        if known.get(description):
            return
        texts = {errno.EEXIST: f"dependency {description} was added before", **_DEPEND}
        if description in known:
            raise OSError(errno.EEXIST, texts[errno.EEXIST])
        _check(lib.flux_jobtap_dependency_add(self.p, id, description.encode()), texts)
        _dependencies.of(id, dict, self._is_active)[description] = True

    def dependency_remove(self, id: int, description: str) -> None:
        id = self._id(id)
        known = _dependencies_of(id, self._lookup(id, "state"))
        text = f"no open dependency {description}"
        if description not in known and self._lookup(id, "t_submit") < _STARTED:
            # Perhaps it was added before a restart: this has no effect if it is open, and if it is
            # not there is one to remove.
            rc = lib.flux_jobtap_dependency_add(self.p, id, description.encode())
            _check(rc, {errno.EEXIST: text})
        elif not known.get(description):
            raise OSError(errno.ENOENT, text)
        _dependencies.of(id, dict, self._is_active)[description] = False
        rc = lib.flux_jobtap_dependency_remove(self.p, id, description.encode())
        _check(rc, {errno.ENOENT: text, **_DEPEND})

    def reprioritize_job(self, id: int, priority: int) -> None:
        _check(lib.flux_jobtap_reprioritize_job(self.p, self._id(id), priority), _JOB)

    def reprioritize_all(self) -> None:
        _check(lib.flux_jobtap_reprioritize_all(self.p))

    def jobspec_update(self, updates: dict[str, Any]) -> None:
        id = self._id(CURRENT_JOB)
        if fetch(args_address(_running[-1].args), "state") >= RUN:
            raise OSError(errno.EINVAL, _UPDATE[errno.EINVAL])
        self._count(id, "jobspec-update")
        _running[-1].updates.update(updates)

    def jobspec_update_id(self, id: int, updates: dict[str, Any]) -> None:
        id = self._id(id)
        self._lookup(id, "id")
        self._count(id, "jobspec-update")
        _check(lib.jobtap_jobspec_update(self.p, 0, id, json.dumps(updates).encode()), _UPDATE)

    def job_subscribe(self, id: int) -> None:
        _check(lib.flux_jobtap_job_subscribe(self.p, self._id(id)), _JOB)

    def job_unsubscribe(self, id: int) -> None:
        lib.flux_jobtap_job_unsubscribe(self.p, self._id(id))

    # -- auxiliary data: C keeps a handle, and frees it with the job -------------------------------

    def job_aux_set(self, id: int, name: str, value: Any, free_fn: Any) -> None:
        id = self._id(id)
        if self._lookup(id, "state") == INACTIVE:
            raise OSError(errno.EINVAL, "job is inactive")
        self.job_aux_delete(id, name)
        entry = AuxEntry(self, id, name, value, free_fn)
        rc = lib.jobtap_job_aux_set(self.p, id, name.encode(), entry.handle)
        _check(rc, _JOB)
        self.aux[id, name] = entry

    def job_aux_get(self, id: int, name: str, default: Any) -> Any:
        entry = self.aux.get((self._id(id), name))
        if entry is None:
            self._lookup(self._id(id), "id")
            return default
        return entry.value

    def job_aux_delete(self, id: int, name: str) -> None:
        id = self._id(id)
        entry = self.aux.get((id, name))
        if entry is None:
            self._lookup(id, "id")
        else:
            _check(lib.flux_jobtap_job_aux_delete_value(self.p, id, entry.handle), _JOB)

    def job_aux_delete_value(self, id: int, value: Any) -> None:
        id = self._id(id)
        self._lookup(id, "id")
        for entry in list(self.aux.values()):
            if entry.id == id and entry.value is value:
                lib.flux_jobtap_job_aux_delete_value(self.p, id, entry.handle)

    # -- prologs and epilogs -----------------------------------------------------------------------

    def perilog_start(self, id: int, kind: str, description: str, if_removed: int) -> None:
        current = lib.jobtap_id(_running[-1].args) if _running else -1
        id = self._id(id)
        state, begun = self._lookup(id, "state"), self.job_event_posted(id, "start")
        loaded = (host.perilogs for host in _loaded.values())
        perilogs.check_start(loaded, id, kind, state, begun)
        if id == current:
            start = getattr(lib, f"flux_jobtap_{kind}_start")
            _check(start(self.p, description.encode()), _JOB)
        else:
            # The C function only works on the current job. For other jobs its event is posted here.
            self.event_post(id, f"{kind}-start", {"description": description})
        self.perilogs.started(Perilog(id, kind, description, if_removed))

    def perilog_finish(self, id: int, kind: str, description: str, status: int) -> None:
        id = self._id(id)
        loaded = (host.perilogs for host in _loaded.values())
        known = perilogs.is_open(loaded, id, kind, description)
        if not known and self._is_active(id) and self._lookup(id, "t_submit") >= _STARTED:
            raise OSError(errno.EINVAL, f"job has no open {kind}")
        self._post_finish(id, kind, description, status)
        any(host.perilogs.finished(id, kind, description) for host in _loaded.values())

    def _post_finish(self, id: int, kind: str, description: str, status: int) -> None:
        finish = getattr(lib, f"flux_jobtap_{kind}_finish")
        _check(finish(self.p, id, description.encode(), status), _JOB)

    def _finish(self, perilog: Perilog, status: int, note: str | None) -> None:
        """Finish a prolog or an epilog in the plugin's place.

        A job with a failed prolog does not run.
        """
        id, kind = perilog.id, perilog.kind
        if self._lookup(id, "state") == INACTIVE:
            return
        if note is not None:
            self.raise_exception(id, kind, 0 if kind == "prolog" else 1, note)
        self._post_finish(id, kind, perilog.description, status)

    # -- other plugins, services -------------------------------------------------------------------

    def call(self, id: int, topic: str, args: Any) -> dict[str, Any]:
        id = self._id(id)
        mine = ffi.NULL
        if args is None:
            found = lib.flux_jobtap_job_lookup(self.p, id)
            if found == ffi.NULL:
                raise _error("unknown job id")
            mine = lib.jobtap_args(found, ffi.NULL)
            lib.flux_plugin_arg_destroy(found)
        elif isinstance(args, CallbackArgs) and args.is_live():
            mine = lib.jobtap_args(ffi.cast("flux_plugin_arg_t *", args.source().pointer), ffi.NULL)
        else:
            text = json.dumps(validation.plain(dict(args), "call: args"))
            mine = lib.jobtap_args(ffi.NULL, text.encode())
        if mine == ffi.NULL:
            raise OSError(errno.EINVAL, "call: args must be a mapping that JSON can hold")
        try:
            ffi.errno = 0
            rc = lib.flux_jobtap_call(self.p, id, topic.encode(), mine)
            number = ffi.errno
            answer = everything(args_address(mine), 1)
        finally:
            lib.flux_plugin_arg_destroy(mine)
        if rc < 0:
            if "errmsg" in answer:
                raise JobtapError(answer["errmsg"])
            if number in (errno.ENOENT, errno.EINVAL):
                raise OSError(number, _JOB.get(number, os.strerror(number)))
            raise JobtapError(f"{topic} failed")
        answer = dict(answer)
        if answer.get("priority") == C_PRIORITY_UNAVAIL:
            answer["priority"] = PRIORITY_UNAVAIL
        return answer

    def service_register(self, method: str, rolemask: int, callback: Callable[..., Any]) -> None:
        name = self._service_name
        topic = f"job-manager.{name}.{method}"
        if any(entry[2] == topic for entry in _services.values()):
            raise FileExistsError(errno.EEXIST, f"{topic} is registered already")
        number = next(_numbers)
        _services[number] = (self, callback, topic)
        self._numbers.append(number)
        try:
            _check(lib.jobtap_service_register(self.p, method.encode(), rolemask, number))
        except OSError:
            del _services[number]
            raise

    def serve(self, callback: Callable[..., Any], topic: str, msg: Any) -> None:
        """Call the plugin's function for a request to one of its services."""
        try:
            with self.perilogs.call(f"{self.plugin.name}: service {topic.partition('.')[2]}"):
                callback(self.plugin, msg)
        except OSError as exc:
            self.handle.respond_error(msg, exc.errno or errno.EINVAL, describe(exc))
        except FAILURES as exc:
            self.report(f"service {topic.partition('.')[2]}", exc)
            self.handle.respond_error(msg, errno.EIO, f"{self.plugin.name}: {brief(exc)}")

    # -- the end -----------------------------------------------------------------------------------

    def unload(self) -> None:
        """Unload the plugin. Its flux_plugin_t is partly destroyed, so only the handle may be
        used."""
        plugin = self.plugin
        for number in self._numbers:
            _services.pop(number, None)
        if plugin is not None:
            callback = plugin.handlers.exactly("plugin.exit")
            self.perilogs.end(plugin.name)
            plugin.end()
            if callback is not None:
                try:
                    with self.perilogs.call(f"{plugin.name}: plugin.exit"):
                        callback(plugin, "plugin.exit", FrozenDict())
                except FAILURES as exc:
                    self.report("plugin.exit", exc)
        self.plugin_resources.end(drop_future)
        self.handle.drop()
        self.plugin = self.p = None
        gc.collect()


class AuxEntry:
    """A value attached to a job by a plugin."""

    def __init__(self, host: PluginHost, id: int, name: str, value: Any, free_fn: Any) -> None:
        self.host = host
        self.id = id
        self.name = name
        self.value = value
        self.free_fn = free_fn
        self.handle = ffi.new_handle(self)

    def free(self) -> None:
        """Called when the value is removed or replaced, or the job is gone."""
        aux, key = self.host.aux, (self.id, self.name)
        if aux.get(key) is self:
            del aux[key]
        if self.free_fn is not None:
            try:
                self.free_fn(self.value)
            except FAILURES as exc:
                self.host.report(f"free function of '{self.name}'", exc)


# -- errors ----------------------------------------------------------------------------------------

_JOB = {errno.ENOENT: "unknown job id, or the job is inactive"}
_DEPEND = {errno.EINVAL: "dependencies belong to DEPEND state"}
_RESULT = {errno.ENOENT: "unknown job id", errno.EINVAL: "job has no result yet"}
_UPDATE = {
    errno.EINVAL: "the jobspec of a job in RUN state or later, or of the current job by its id, cannot be updated"
}


def _error(text: str) -> OSError:
    """Return an OSError with the errno of the last C call, and a text."""
    return OSError(ffi.errno or errno.EINVAL, text)


def _check(rc: int, texts: dict[int, str] | None = None) -> None:
    """Raise OSError if a C function has failed (`rc` below 0), with the text for its errno from
    `texts` or the system."""
    if rc < 0:
        number = ffi.errno or errno.EINVAL
        raise OSError(number, (texts or {}).get(number) or os.strerror(number))


def _string(pointer: Any) -> str:
    return ffi.string(pointer).decode(errors="surrogateescape")


def _find(p: Any, basename: str) -> tuple[str, dict[str, Any]]:
    """Return the path of the Python file, and the arguments for the plugin."""
    path = _string(lib.flux_plugin_get_path(p))
    conf = lib.flux_plugin_get_conf(p)
    args = json.loads(_string(conf)) if conf else {}
    beside = os.path.splitext(path)[0] + ".py"
    if basename != "python.so" and os.path.exists(beside):
        return os.path.realpath(beside), args
    file = args.pop("file", None)
    if file is None:
        if basename == "python.so":
            raise JobtapError(
                "python.so: which file? flux jobtap load python.so file=/path/of/plugin.py"
            )
        raise OSError(errno.ENOENT, f"{beside}: {os.strerror(errno.ENOENT)}")
    if not isinstance(file, str) or not os.path.isabs(file):
        raise JobtapError(
            f"file={file}: the path must be absolute: the job manager has another working directory"
        )
    return os.path.realpath(file), args


def args_address(args: Any) -> int:
    """Return the address of a ``flux_plugin_arg_t``, as ``_flux_jobtap_values`` expects it."""
    return int(ffi.cast("uintptr_t", args))


def _report_stray(exc: BaseException) -> None:
    """Log an exception of an unknown callback, under the name of any plugin."""
    for host in _loaded.values():
        host.report("callback", exc)
        break


thread_guard.install(_report_stray)


# -- calls from C ----------------------------------------------------------------------------------


@ffi.def_extern(error=0)
def python_load(p: Any, key: int) -> int:
    thread_guard.set_job_manager_thread()
    basename = os.path.basename(_string(lib.flux_plugin_get_path(p)))
    if any(host.basename == basename for host in _loaded.values()):
        return 1  # the job manager itself refuses it: already loaded
    host = _loaded[key] = PluginHost(p, key)
    host.load()
    return 1


@ffi.def_extern(error=-1)
def python_call(key: int, topic: Any, args: Any) -> int:
    host = _loaded.get(key)
    if host is None:
        return 0
    topic = ffi.string(topic).decode()
    if host.error is not None:
        return lib.jobtap_error(host.p, args, host.error.encode(errors="replace"))
    if topic == "job.update" or topic == "job.event.jobspec-update":
        forget_jobspecs()
    elif topic == "job.state.depend":
        host.depend(args)
    callback = host.plugin.handlers.find(topic)
    if callback is None:
        return 0
    return RunningCallback(host, topic, args).run(callback)


@ffi.def_extern()
def python_unload(key: int) -> None:
    host = _loaded.get(key)
    if host is not None:
        try:
            host.unload()
        finally:
            del _loaded[key]


@ffi.def_extern()
def python_free(pointer: Any) -> None:
    ffi.from_handle(pointer).free()


@ffi.def_extern()
def python_request(msg: Any, number: int) -> None:
    host, callback, topic = _services[number]
    pointer = core_ffi.cast("flux_msg_t *", int(ffi.cast("uintptr_t", msg)))
    host.serve(callback, topic, Message(handle=pointer))
