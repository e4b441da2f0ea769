# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's functions for plugins: the calls behind `flux.jobtap.Plugin`."""

import errno
import os
from syslog import LOG_ERR
from types import MappingProxyType

from flux.jobtap import perilogs, validation
from flux.jobtap.callbacks import CallbackArgs, freeze
from flux.jobtap.errors import FAILURES, brief
from flux.jobtap.perilogs import Perilog, Perilogs
from flux.jobtap.plugin import Plugin, service_name
from flux.jobtap.plugin_handle import (
    PluginHandle,
    PluginResources,
    PluginRPC,
    drop_future,
    no_answer,
    refuse_to_wait,
    wait_limit,
)
from flux.jobtap.validation import CURRENT_JOB
from flux_engine.formats import states
from flux_engine.formats.dotted import update_paths
from flux_engine.formats.states import CLEANUP, INACTIVE, RUN
from flux_engine.kernel.handle import Flux
from flux_engine.kernel.message import OWNER_ROLES, ROLE_OWNER


class PluginFlux(Flux):
    """The job manager's handle for one plugin; the plugin's handle of the bindings wraps it."""

    def __init__(self, service, plugin_resources):
        # The base class's __init__ is not called: it would replace the task's own handle.
        self.task = service
        self.kernel = service.kernel
        self.plugin_resources = plugin_resources

    def send_request(self, future, topic, *args, **kwargs):
        self.plugin_resources.check()
        super().send_request(future, topic, *args, **kwargs)
        future.topic = topic
        return self.plugin_resources.add_future(future)

    def about_to_wait(self, future, timeout):
        self.plugin_resources.check()
        refuse_to_wait(getattr(future, "topic", ""))
        return wait_limit(timeout)

    def waited_in_vain(self, future, timeout):
        raise no_answer(getattr(future, "topic", ""), wait_limit(timeout))


def _drop_future(future):
    """Destroy a future, of the bindings or of the kernel."""
    if isinstance(future, PluginRPC):
        drop_future(future)
    else:
        future.end()


class Builtin(Plugin):
    """A rule of the job manager's own, with access to its `jobs`, its `queues` and the `kvs` (Tree)."""

    _check_event = staticmethod(validation.event)

    def __init__(self, host, name):
        super().__init__(host, name, "builtin", {}, handle=host.service.h)
        self.jobs = host.jobs
        self.queues = host.service.queues
        self.kvs = host.service.ctx.kvs


class Host:
    """The job manager as one plugin sees it: that of the file `path`, or one of the job manager's own rules.

    Attributes:
        plugin (Plugin): the plugin
        sort_order (str): see `Plugin.set_load_sort_order`
        perilogs (Perilogs): the prologs and epilogs that it has open
        plugin_resources (PluginResources): its watchers and futures
    """

    def __init__(self, jobtap, name, path=None, args=None):
        self.jobtap = jobtap
        self.service, self.jobs, self.events = jobtap.service, jobtap.jobs, jobtap.events
        self.sort_order = "none"
        self.perilogs = Perilogs(
            self._finish, lambda text: self.service.log(LOG_ERR, f"jobtap: {text}")
        )
        self.plugin_resources = PluginResources(
            name, self.report, lambda: jobtap.guest(self.plugin)
        )
        self._name = service_name(name)  # in the topics of its services
        self._methods = []  # those of its services
        if path is None:
            self.plugin = Builtin(self, name)
        else:
            handle = PluginFlux(self.service, self.plugin_resources)
            handle = PluginHandle(handle, self.plugin_resources)
            self.plugin = Plugin(self, name, path, args, handle=handle)
        jobtap.hosts[self.plugin] = self

    def report(self, where, exc):
        self.jobtap.report(self.plugin, where, exc)

    def handlers_changed(self, topic):
        self.jobtap.handlers_changed()

    def set_name(self, name):
        self._name = name

    def set_load_sort_order(self, mode):
        self.sort_order = mode

    def end(self):
        """The plugin was removed: end its watchers, futures, services, prologs and epilogs."""
        for method in self._methods:
            del self.service.methods[f"job-manager.{method}"]
        self.perilogs.end(self.plugin.name)
        self.plugin.end()
        self.plugin_resources.end(_drop_future)

    def _finish(self, perilog, status, note):
        """Finish a prolog or an epilog on behalf of its plugin; a job whose prolog has failed does not run."""
        job = self._job(perilog.id)
        if note is not None:
            severity = 0 if perilog.kind == "prolog" else 1
            self.events.raise_exception(job, perilog.kind, severity, note)
        context = {"description": perilog.description, "status": status}
        self.events.post(job, f"{perilog.kind}-finish", context)

    # -- jobs -----------------------------------------------------------------------------------------

    def _job(self, id, active=True):
        if id == CURRENT_JOB:
            job = self.jobtap.current_job()
            if job is None:
                raise OSError(errno.EINVAL, "CURRENT_JOB: not in a callback for a job")
        else:
            job = self.jobs.find(id)
            if job is None:
                raise OSError(errno.ENOENT, "unknown job id")
        if active and job.state == INACTIVE:
            raise OSError(errno.ENOENT, "unknown job id, or the job is inactive")
        return job

    def _count(self, job, name):
        """Count an event that a plugin posts; OSError (ELOOP) if it posts without end."""
        self.jobtap.posts.count(self.events.cascade, self.plugin.name, name, job.id)

    def post(self, job, name, context):
        """Post an event for a plugin, unless it posts without end."""
        self._count(job, name)
        self.events.post(job, name, context)

    def job_lookup(self, id):
        job = self._job(id, active=False)
        source = JobSource(job, {})
        if isinstance(self.plugin, Builtin):
            return source.raw()
        args = CallbackArgs(source)
        args.release(True)
        return args

    def get_job_result(self, id):
        job = self._job(id, active=False)
        if job.state < CLEANUP:
            raise OSError(errno.EINVAL, "job has no result yet")
        return job.result

    def job_event_posted(self, id, name):
        job = self._job(id, active=False)
        return job.was_posted(name) or any(event["name"] == name for event in job.queue)

    def job_set_flag(self, id, flag):
        self.post(self._job(id), "set-flags", {"flags": [flag]})

    def raise_exception(self, id, type, severity, note):
        job = self._job(id)
        self._count(job, "exception")
        self.events.raise_exception(job, type, severity, note)

    def event_post(self, id, name, context):
        job = self._job(id)
        if name == "resource-update":
            now = self.service.kernel.time
            validation.resource_update(job.R is not None, context["expiration"], now)
        self.post(job, name, context)

    # -- dependencies ------------------------------------------------------------------------------------

    def _dependent(self, id):
        job = self._job(id, active=False)
        if job.state > states.DEPEND:
            raise OSError(errno.EINVAL, "dependencies belong to DEPEND state")
        return job

    def dependency_add(self, id, description):
        job = self._dependent(id)
        events = self.events
        queued_add = events.queued(job, "dependency-add", description)
        if events.queued(job, "dependency-remove", description):
            is_open = False
        else:
            is_open = queued_add or (job.dependencies or {}).get(description)
        if is_open:
            return
        if queued_add or description in (job.dependencies or ()):
            raise FileExistsError(errno.EEXIST, f"dependency {description} was added before")
        self.post(job, "dependency-add", {"description": description})

    def dependency_remove(self, id, description):
        job = self._dependent(id)
        events = self.events
        is_open = job.dependencies is not None and job.dependencies.get(description)
        is_open = is_open or events.queued(job, "dependency-add", description)
        if not is_open or events.queued(job, "dependency-remove", description):
            raise FileNotFoundError(errno.ENOENT, f"no open dependency {description}")
        self.post(job, "dependency-remove", {"description": description})

    # -- priority, jobspec ---------------------------------------------------------------------------------

    def reprioritize_job(self, id, priority):
        self.service.life.set_priority(self._job(id), priority)

    def reprioritize_all(self):
        self.service.life.reprioritize_all()

    def jobspec_update(self, updates):
        job = self._job(CURRENT_JOB)
        self._check_update(job)
        self.jobtap.collect_updates(updates)

    def jobspec_update_id(self, id, updates):
        job = self._job(id)
        if job is self.jobtap.current_job():
            raise OSError(errno.EINVAL, "jobspec_update_id: use jobspec_update for the current job")
        self._check_update(job)
        self.post(job, "jobspec-update", updates)

    @staticmethod
    def _check_update(job):
        if job.state >= RUN:
            raise OSError(
                errno.EINVAL, "the jobspec of a job in RUN state or later cannot be updated"
            )

    # -- subscriptions, auxiliary data -----------------------------------------------------------------------

    def job_subscribe(self, id):
        job = self._job(id)
        if job.subscribers is None:
            job.subscribers = []
        if self.plugin not in job.subscribers:
            job.subscribers.append(self.plugin)

    def job_unsubscribe(self, id):
        try:
            job = self._job(id, active=False)
        except FileNotFoundError:
            return
        if job.subscribers and self.plugin in job.subscribers:
            job.subscribers.remove(self.plugin)

    def job_aux_set(self, id, name, value, free_fn):
        job = self._job(id)
        if job.aux is None:
            job.aux = {}
        self.jobtap.free_aux(job, (self.plugin, name))
        job.aux[(self.plugin, name)] = (value, free_fn)

    def job_aux_get(self, id, name, default):
        aux = self._job(id, active=False).aux
        return aux.get((self.plugin, name), (default, None))[0] if aux else default

    def job_aux_delete(self, id, name):
        self.jobtap.free_aux(self._job(id, active=False), (self.plugin, name))

    def job_aux_delete_value(self, id, value):
        job = self._job(id, active=False)
        for key, (held, _) in list((job.aux or {}).items()):
            if key[0] is self.plugin and held is value:
                self.jobtap.free_aux(job, key)

    # -- prolog and epilog -------------------------------------------------------------------------------------

    def perilog_start(self, id, kind, description, if_removed):
        job = self._job(id)
        begun = job.start_pending or job.was_posted("start")
        loaded = (host.perilogs for host in self.jobtap.hosts.values())
        perilogs.check_start(loaded, job.id, kind, job.state, begun)
        self.perilogs.started(Perilog(job.id, kind, description, if_removed))
        self.post(job, f"{kind}-start", {"description": description})

    def perilog_finish(self, id, kind, description, status):
        job = self._job(id)
        hosts = self.jobtap.hosts.values()
        perilogs.is_open((host.perilogs for host in hosts), job.id, kind, description)
        queued = [event["name"] for event in job.queue]
        if job.perilogs + queued.count(f"{kind}-start") <= queued.count(f"{kind}-finish"):
            raise OSError(errno.EINVAL, f"job has no open {kind}")
        any(host.perilogs.finished(job.id, kind, description) for host in hosts)
        context = {"description": description, "status": status}
        self.post(job, f"{kind}-finish", context)

    # -- other plugins, services ---------------------------------------------------------------------------------

    def call(self, id, topic, args):
        job = self._job(id, active=False)
        if args is None:
            source = JobSource(job, {})
        elif isinstance(args, CallbackArgs) and args.is_live():
            source = args.source()
        else:
            source = DictSource(freeze(validation.plain(dict(args), "call: args")))
        return self.jobtap.call_or_raise(job, topic, source)

    def service_register(self, method, rolemask, callback):
        full = f"{self._name}.{method}"
        if f"job-manager.{full}" in self.service.methods:
            raise FileExistsError(errno.EEXIST, f"job-manager.{full} is registered already")

        def serve(msg):
            if not msg.rolemask & (rolemask | ROLE_OWNER):
                raise OSError(errno.EPERM, os.strerror(errno.EPERM))
            try:
                with self.jobtap.guest(self.plugin, f"service {full}"):
                    callback(self.plugin, msg)
            except OSError:
                raise
            except FAILURES as exc:  # an error of the plugin: its caller is told, others continue
                self.report(f"service {full}", exc)
                raise OSError(errno.EIO, f"{self.plugin.name}: {brief(exc)}") from None

        self.service.add_method(full, serve, bool(rolemask & ~OWNER_ROLES), later=True)
        self._methods.append(full)


class DictSource:
    """Args from a dict that is never changed."""

    def __init__(self, values):
        self.values = values

    def raw(self):
        return MappingProxyType(self.values)

    def fetch(self, key):
        return self.values[key]

    def keys(self):
        return list(self.values)


def jobspec_of(job):
    """The job's jobspec; of a new job, including the updates in its event queue."""
    jobspec = job.jobspec
    if job.state == states.NEW:
        for event in job.queue:
            if event["name"] == "jobspec-update":
                jobspec = update_paths(jobspec, event["context"])
    return jobspec


class JobSource:
    """The args of a job, and `more` for the topic, copied on access."""

    __slots__ = ("job", "more")

    def __init__(self, job, more):
        self.job = job
        self.more = more

    def raw(self):
        """The args for the job manager's own rules, not copied."""
        args = {name: getattr(self.job, name) for name in self.keys() if name not in self.more}
        return MappingProxyType({**args, "jobspec": jobspec_of(self.job), **self.more})

    def fetch(self, key):
        if key in self.more:
            return freeze(self.more[key])
        job = self.job
        if key == "jobspec":
            # A jobspec is replaced, never changed in place: the copy is valid while it is the same object.
            jobspec = jobspec_of(job)
            if job.frozen is None or job.frozen[0] is not jobspec:
                job.frozen = (jobspec, freeze(jobspec))
            return job.frozen[1]
        if key in self.keys():
            return freeze(getattr(job, key))
        raise KeyError(key)

    def keys(self):
        names = ["jobspec", "id", "state", "userid", "urgency", "priority", "t_submit"]
        names += [key for key in ("R", "end_event") if getattr(self.job, key) is not None]
        return names + [key for key in self.more if key not in names]
