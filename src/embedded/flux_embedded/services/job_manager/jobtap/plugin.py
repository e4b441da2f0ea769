"""What a jobtap plugin sees: the class `Plugin` (public as ``flux.jobtap``)."""

import errno
import os
from types import MappingProxyType

from flux_embedded.formats import states
from flux_embedded.formats.states import CLEANUP, INACTIVE, PRIORITY_MAX, RUN
from flux_embedded.kernel.message import OWNER_ROLES, ROLE_OWNER
from flux_embedded.services.job_manager.jobtap import given
from flux_embedded.services.job_manager.jobtap.errors import FAILURES, JobtapError, Rejected

#: In place of a job id: the job of the running callback.
CURRENT_JOB = -1
#: In place of a priority: there is none yet.
PRIORITY_UNAVAIL = -1

ROLE_USER = 2


class Plugin:
    """One loaded plugin, passed to ``plugin_init(p)`` and to every callback.

    A callback is ``callback(p, topic, args)``. `args` is a read-only mapping; which keys it has depends on
    the topic (jobspec, R, id, state, prev_state, userid, urgency, priority, t_submit, entry, end_event;
    ``conf`` in conf.update, ``updates`` in job.update.KEY). It returns None or a dict of what it has to say
    (priority, annotations, R, ...), and raises to fail.

    Wherever a job id is expected, `CURRENT_JOB` stands for the job of the running callback. Unless said
    otherwise a method raises OSError: ENOENT for an unknown job, EINVAL for one in the wrong state or for
    CURRENT_JOB outside of a callback.

    Attributes:
        name (str): file name, as ``flux jobtap list`` shows it
        path (str): full path, ``builtin`` for a builtin plugin
        args (dict): arguments it was loaded with
        handle (flux.Flux): the job manager's handle, for RPCs, timers and logging
    """

    def __init__(self, jm, name, path, args):
        self._jm = jm
        self.name = name
        self.path = path
        self.args = args
        self.handle = jm.h
        self.load_sort_order = None
        self.handlers = []
        self.services = []
        self.perilogs = []  # (job, "prolog" or "epilog", description) that it has open
        self._internal_name = name[:-3] if name.endswith(".py") else name

    # -- set-up ------------------------------------------------------------------------------------

    def add_handler(self, topic, callback):
        """Have ``callback(p, topic, args)`` called for `topic`, a callback topic or a glob of them.

        Of several handlers of one plugin that match a topic, the one for exactly that topic is called,
        else the first in order of registration.
        """
        if not callable(callback):
            raise TypeError(f"add_handler: the callback for {topic!r} is not callable")
        self.handlers.append((topic, callback))
        self._jm.jobtap.handlers_changed()

    def set_name(self, name):
        """Set the name used in service topics; without one it is the file name without ``.py``."""
        if not name or "." in name:
            raise OSError(errno.EINVAL, f"set_name: {name!r} cannot be part of a service topic")
        self._internal_name = name

    def set_load_sort_order(self, mode):
        """Order in which job.create and job.new are called for jobs that exist when the plugin loads.

        Args:
            mode (str): ``state`` (PRIORITY jobs first, then DEPEND, then SCHED and on by state, each by id),
                ``-state`` (the reverse order of states), or None for no particular order
        """
        if mode not in (None, "state", "-state"):
            raise OSError(
                errno.EINVAL, f"set_load_sort_order: {mode!r}: expected 'state' or '-state'"
            )
        self.load_sort_order = mode

    def get_flux(self):
        """The job manager's handle."""
        return self.handle

    # -- saying no -------------------------------------------------------------------------------------

    def reject_job(self, text="rejected by job-manager plugin"):
        """Reject the job: from job.create, job.validate and job.dependency.*. Always raises."""
        raise Rejected(text)

    def error(self, text):
        """Fail with a text for the user: from job.update.KEY, conf.update. Always raises."""
        raise JobtapError(text)

    # -- jobs -----------------------------------------------------------------------------------------

    def _job(self, id, active=True):
        jobtap = self._jm.jobtap
        if id == CURRENT_JOB:
            job = jobtap.current_job()
            if job is None:
                raise OSError(errno.EINVAL, "CURRENT_JOB: not in a callback for a job")
        else:
            job = self._jm.jobs.get(id)
            if job is None:
                job = self._jm.inactive.get(id)
                if job is None:
                    raise OSError(errno.ENOENT, "unknown job id")
        if active and job.state == INACTIVE:
            raise OSError(errno.EINVAL, "job is inactive")
        return job

    def job_lookup(self, id):
        """The args mapping of a job, active or inactive."""
        return self._jm.jobtap.args_of(self._job(id, active=False))

    def get_job_result(self, id):
        """Result of a job in CLEANUP or INACTIVE: FLUX_JOB_RESULT_COMPLETED (1), FAILED (2), CANCELED (4)
        or TIMEOUT (8)."""
        job = self._job(id, active=False)
        if job.state < CLEANUP:
            raise OSError(errno.EINVAL, "job has no result yet")
        return job.result

    def job_event_posted(self, id, name):
        """Whether an event `name` was ever posted to the job."""
        job = self._job(id, active=False)
        return job.was_posted(name) or any(event["name"] == name for event in job.queue)

    def job_set_flag(self, id, flag):
        """Set a flag of a job, ``waitable`` or ``debug``: posts ``set-flags``."""
        if flag not in ("waitable", "debug"):
            raise OSError(errno.EINVAL, f"job_set_flag: {flag!r}: expected 'waitable' or 'debug'")
        self._jm.events.post(self._job(id), "set-flags", {"flags": [flag]})

    def raise_exception(self, id, type, severity, note=""):
        """Raise an exception on a job; severity 0 ends it, 1 to 7 is only recorded."""
        if not given.text(type, "type") or any(c.isspace() for c in type):
            raise OSError(errno.EINVAL, f"raise_exception: type={type!r}: expected one word")
        given.severity(severity)
        self._jm.raise_exception(self._job(id), type, severity, given.text(note, "note"))

    def event_post(self, id, name, context=None):
        """Post event `name` with `context` (dict) to a job's eventlog (RFC 18, 21).

        Raises:
            OSError: EINVAL the context cannot be JSON; EPROTO it lacks what RFC 21 demands of such an event
        """
        if not name or not isinstance(name, str):
            raise OSError(errno.EINVAL, "event_post: the event has no name")
        self._jm.events.post(self._job(id), name, given.context_of(name, context))

    # -- dependencies ------------------------------------------------------------------------------------

    def dependency_add(self, id, description):
        """Hold a job in DEPEND until `dependency_remove` with the same description.

        Raises:
            OSError: EEXIST it was added before, even if removed since; EINVAL the job is past DEPEND
        """
        job = self._job(id)
        if job.state > states.DEPEND:
            raise OSError(errno.EINVAL, "dependencies can only be added until DEPEND state")
        given.text(description, "description")
        known = job.dependencies is not None and description in job.dependencies
        if known or self._jm.events.queued(job, "dependency-add", description):
            raise FileExistsError(errno.EEXIST, f"dependency {description} was added before")
        self._jm.events.post(job, "dependency-add", {"description": description})

    def dependency_remove(self, id, description):
        """A dependency is met. If the job is idle, it may have reached SCHED when this returns.

        Raises:
            OSError: ENOENT there is no such open dependency
        """
        job = self._job(id)
        events = self._jm.events
        is_open = job.dependencies is not None and job.dependencies.get(description)
        is_open = is_open or events.queued(job, "dependency-add", description)
        if not is_open or events.queued(job, "dependency-remove", description):
            raise FileNotFoundError(errno.ENOENT, f"no open dependency {description}")
        events.post(job, "dependency-remove", {"description": description})

    # -- priority ------------------------------------------------------------------------------------------

    def priority_unavail(self, args=None):
        """What job.state.priority and job.priority.get return when there is no priority yet."""
        return {"priority": PRIORITY_UNAVAIL}

    def reprioritize_job(self, id, priority):
        """Set the priority of a job in PRIORITY or SCHED (int, 0 to 4294967295).

        Nothing happens to a job that is held or expedited.
        """
        job = self._job(id)
        if type(priority) is not int or not PRIORITY_UNAVAIL <= priority <= PRIORITY_MAX:
            raise OSError(errno.EINVAL, f"{priority!r} is not a priority")
        if not job.state & (states.PRIORITY | states.SCHED):
            raise OSError(errno.EINVAL, "job is not in PRIORITY or SCHED state")
        if priority != PRIORITY_UNAVAIL:
            self._jm.life.set_priority(job, priority)

    def reprioritize_all(self):
        """Call job.priority.get for every job in PRIORITY or SCHED."""
        for job in list(self._jm.jobs.values()):
            self._jm.life.reprioritize(job)

    # -- jobspec -------------------------------------------------------------------------------------------

    def jobspec_update(self, updates):
        """Update the jobspec of the current job.

        Args:
            updates (dict): dotted path, such as ``attributes.system.duration``, to value (RFC 21)
        """
        self._jm.updates.by_plugin(self._job(CURRENT_JOB), given.plain(updates, "jobspec_update"))

    def jobspec_update_id(self, id, updates):
        """Update the jobspec of a job that is not the current one; see `jobspec_update`."""
        job = self._job(id)
        if job is self._jm.jobtap.current_job():
            raise OSError(errno.EINVAL, "jobspec_update_id: use jobspec_update for the current job")
        self._jm.updates.by_plugin(job, given.plain(updates, "jobspec_update_id"))

    # -- subscriptions, auxiliary data -----------------------------------------------------------------------

    def job_subscribe(self, id):
        """Receive job.event.* callbacks for a job, until it is inactive."""
        job = self._job(id)
        if job.subscribers is None:
            job.subscribers = []
        if self not in job.subscribers:
            job.subscribers.append(self)

    def job_unsubscribe(self, id):
        """Undo `job_subscribe`."""
        job = self._job(id, active=False)
        if job.subscribers and self in job.subscribers:
            job.subscribers.remove(self)

    def job_aux_set(self, id, name, value, free_fn=None):
        """Attach `value` to a job under `name`; ``free_fn(value)`` is called when it goes."""
        job = self._job(id)
        if job.aux is None:
            job.aux = {}
        self._jm.jobtap.free_aux(job, (self, name))
        job.aux[(self, name)] = (value, free_fn)

    def job_aux_get(self, id, name, default=None):
        """What this plugin attached to a job under `name`, or `default`."""
        aux = self._job(id, active=False).aux
        return aux.get((self, name), (default, None))[0] if aux else default

    def job_aux_delete(self, id, name):
        """Remove what is attached to a job under `name`; nothing there is no error."""
        self._jm.jobtap.free_aux(self._job(id, active=False), (self, name))

    def job_aux_delete_value(self, id, value):
        """Remove `value` (this very object) from a job, whatever its name."""
        job = self._job(id, active=False)
        for key, (held, _) in list((job.aux or {}).items()):
            if key[0] is self and held is value:
                self._jm.jobtap.free_aux(job, key)

    # -- prolog and epilog -------------------------------------------------------------------------------------

    def prolog_start(self, description, id=CURRENT_JOB):
        """Keep the job from being started until `prolog_finish`."""
        job = self._job(id)
        if job.state > RUN or job.start_pending or job.was_posted("start"):
            raise OSError(errno.EINVAL, "it is too late for a prolog of this job")
        self.perilogs.append((job, "prolog", given.text(description, "description")))
        self._jm.events.post(job, "prolog-start", {"description": description})

    def prolog_finish(self, id, description, status):
        """A prolog has ended with a wait status, which is recorded and has no other effect."""
        self._perilog_finish(id, "prolog", description, status)

    def epilog_start(self, description, id=CURRENT_JOB):
        """Keep the job's resources from being freed until `epilog_finish`."""
        job = self._job(id)
        if job.state != CLEANUP or not job.has_resources:
            raise OSError(
                errno.EINVAL, "an epilog needs a job in CLEANUP state that holds resources"
            )
        self.perilogs.append((job, "epilog", given.text(description, "description")))
        self._jm.events.post(job, "epilog-start", {"description": description})

    def epilog_finish(self, id, description, status):
        """An epilog has ended with a wait status, which is recorded and has no other effect."""
        self._perilog_finish(id, "epilog", description, status)

    def _perilog_finish(self, id, kind, description, status):
        job = self._job(id)
        context = given.context_of(f"{kind}-finish", {"description": description, "status": status})
        queued = [event["name"] for event in job.queue]
        if job.perilogs + queued.count(f"{kind}-start") <= queued.count(f"{kind}-finish"):
            raise OSError(errno.EINVAL, f"job has no open {kind}")
        for plugin in self._jm.jobtap.plugins:
            if (job, kind, description) in plugin.perilogs:
                plugin.perilogs.remove((job, kind, description))
                break
        self._jm.events.post(job, f"{kind}-finish", context)

    # -- other plugins, services ---------------------------------------------------------------------------------

    def call(self, id, topic, args=None):
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
        if topic.startswith("job."):
            raise OSError(errno.EINVAL, f"call: topic {topic} is reserved for the job manager")
        jobtap = self._jm.jobtap
        job = self._job(id, active=False)
        return jobtap.call_or_raise(
            job, topic, jobtap.args_of(job) if args is None else MappingProxyType(dict(args))
        )

    def service_register(self, method, callback):
        """Serve ``job-manager.NAME.METHOD`` for all users: ``callback(p, msg)`` answers with
        ``p.handle.respond``."""
        self.service_register_ex(method, ROLE_OWNER | ROLE_USER, callback)

    def service_register_ex(self, method, rolemask, callback):
        """`service_register` for users with a role in `rolemask` (FLUX_ROLE_OWNER 1, FLUX_ROLE_USER 2)."""
        full = f"{self._internal_name}.{method}"
        if f"job-manager.{full}" in self._jm.methods:
            raise FileExistsError(errno.EEXIST, f"job-manager.{full} is registered already")

        def serve(msg):
            if not msg.rolemask & (rolemask | ROLE_OWNER):
                raise OSError(errno.EPERM, os.strerror(errno.EPERM))
            try:
                callback(self, msg)
            except OSError:
                raise
            except FAILURES as exc:  # the plugin's fault: its caller is told, others go on
                self._jm.jobtap.report(self, f"service {full}", exc)
                raise OSError(errno.EIO, f"{self.name}: {exc}") from None

        self._jm.add_method(full, serve, guest=bool(rolemask & ~OWNER_ROLES))
        self.services.append(full)


__all__ = ["CURRENT_JOB", "PRIORITY_UNAVAIL", "JobtapError", "Plugin", "Rejected"]
