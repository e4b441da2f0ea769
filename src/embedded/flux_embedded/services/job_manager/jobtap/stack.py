# SPDX-License-Identifier: LGPL-3.0-or-later
"""The plugins of the job manager: loading, configuring and calling them; methods ``jobtap`` and ``jobtap-query``.

Handlers are looked up once per topic; a topic without handlers costs one dict lookup. A callback that raises
is logged with its plugin and topic; it fails the operation only if the topic can fail (job.create,
job.validate, job.dependency.*, job.update.KEY, conf.update).
"""

import errno
import fnmatch
import os
import sys
from contextlib import contextmanager
from syslog import LOG_DEBUG, LOG_ERR

from _flux import module
from flux.jobtap import plugin_file, process_guard, validation
from flux.jobtap.callbacks import CallbackArgs, FrozenDict, drop_ignored, freeze, read_answer
from flux.jobtap.errors import (
    BAD_ANNOTATIONS,
    FAILURES,
    R_WITHOUT_BYPASS,
    JobtapError,
    Rejected,
    brief,
    describe,
    describe_for_log,
    trace,
)
from flux.jobtap.plugin_handle import PostCounts
from flux.jobtap.validation import PRIORITY_UNAVAIL
from flux_embedded.services.job_manager.jobtap.builtins import BUILTINS
from flux_embedded.services.job_manager.jobtap.host import Builtin, Host, JobSource
from flux_embedded.services.job_manager.part import Part
from flux_engine import paths
from flux_engine.formats import form, states
from flux_engine.kernel.service import request

EXAMPLES = os.path.join(paths.BASE, "jobtap", "examples")
NOTHING = {}
#: Topics whose ``priority`` the caller handles itself.
_OWN_PRIORITY = ("job.state.priority", "job.priority.get")


class Jobtap(Part):
    """The plugins, and their handlers.

    Attributes:
        plugins (list): in load order
        hosts (dict): Plugin -> its Host, of those that are loaded or being loaded
        posts (PostCounts): the events that plugins have posted in this turn
    """

    def __init__(self, service):
        super().__init__(service)
        self.plugins = []
        self.hosts = {}
        self.posts = PostCounts()
        module.prepare()
        self._table = {}
        self._current = []
        self._updates = []  # updates that the running callbacks have collected with jobspec_update
        self._guests = []  # plugins whose code runs
        process_guard.install(self)

    # -- handlers --------------------------------------------------------------------------------

    def handlers_changed(self):
        self._table.clear()

    def _compile(self, topic):
        found = []
        for plugin in self.plugins:
            callback = plugin.handlers.find(topic)
            if callback is not None:
                found.append((plugin, callback))
        if len(self._table) > 1000:
            self.handlers_changed()
        self._table[topic] = found = tuple(found)
        return found

    def handlers(self, topic):
        """((plugin, callback), ...) for `topic`, in load order."""
        found = self._table.get(topic)
        return self._compile(topic) if found is None else found

    # -- running callbacks -------------------------------------------------------------------------

    def current_job(self):
        """The job of the running callback, or None."""
        return self._current[-1] if self._current else None

    @contextmanager
    def guest(self, plugin, what="callback"):
        """While code of `plugin` runs: it owns its watchers and futures; prologs and epilogs it starts end if it fails."""
        task = self.service
        former, task.handle = task.handle, plugin.handle
        self._guests.append(plugin)
        perilogs = self.hosts[plugin].perilogs
        try:
            with perilogs.call(f"{plugin.name}: {what}"):
                yield
        finally:
            self._guests.remove(plugin)
            task.handle = former

    def is_running_plugin(self):
        """Whether a plugin's code is running; the job manager's task is the running one then."""
        return bool(self._guests) and self.service.kernel.running is self.service

    # -- calling -----------------------------------------------------------------------------------

    def call(self, job, topic, handlers=None, **more):
        """Call all handlers of a topic that cannot fail, or some of them; returns their merged answers."""
        handlers = self.handlers(topic) if handlers is None else handlers
        if not handlers:
            return NOTHING
        out = self._call_stack(job, topic, JobSource(job, more), handlers, False)
        priority = out.get("priority", PRIORITY_UNAVAIL)
        if priority != PRIORITY_UNAVAIL and topic not in _OWN_PRIORITY and topic.startswith("job."):
            # The answer for any topic may have one.
            self.service.life.set_priority(job, priority)
        self._go_on(job)
        return out

    def call_or_raise(self, job, topic, source):
        """Call handlers until one refuses; raises JobtapError with a text for the user."""
        out = self._call_stack(job, topic, source, self.handlers(topic), True)
        self._go_on(job)
        return out

    def _go_on(self, job):
        """Process the events posted by callbacks."""
        if job is not None and job.queue and not (job.busy or job.hold):
            self.events.drain(job)

    def _failed(self, plugin, topic, exc, can_refuse):
        """A callback has raised: log the exception, or raise it again with a text for the user."""
        if can_refuse and isinstance(exc, JobtapError):
            raise exc
        self.report(plugin, topic, exc)
        if can_refuse:
            raise JobtapError(f"{plugin.name}: {topic}: {brief(exc)}") from exc

    def _call_stack(self, job, topic, source, handlers, can_refuse):
        out = {}
        views = []  # the immutable args, once a plugin has been given them
        self._current.append(job)
        was_busy = job is not None and job.busy
        if job is not None:
            job.busy = True
        try:
            for plugin, callback in handlers:
                if plugin not in self.hosts:
                    continue  # removed by an earlier callback
                self._updates.append(None)
                try:
                    answer = self._call_one(plugin, callback, topic, source, views)
                    updates = self._updates[-1]
                    if updates:
                        self.hosts[plugin].post(job, "jobspec-update", updates)
                        if job.state == states.NEW:
                            _release(views)  # the next callbacks see another jobspec
                except FAILURES as exc:
                    self._failed(plugin, topic, exc, can_refuse)
                    continue
                finally:
                    self._updates.pop()
                if answer:
                    self._merge(job, topic, plugin, answer, out)
        finally:
            self._current.pop()
            if job is not None:
                job.busy = was_busy
            _release(views)
        return out

    def _call_one(self, plugin, callback, topic, source, views):
        """Call one callback; returns a dict or None, and raises its exception, or a refusal by its answer."""
        if isinstance(plugin, Builtin):
            return callback(plugin, topic, source.raw())
        with self.guest(plugin, topic):
            if not views:
                views.append(CallbackArgs(source))
            answer = callback(plugin, topic, views[0])
            if answer is None:
                return None
            answer = read_answer(answer, topic, plugin.name)
        if answer and topic.startswith("job.update.") and answer.get("updates"):
            validation.updates(answer["updates"], "updates in the answer")
        return answer

    def collect_updates(self, updates):
        """jobspec_update: they are posted when the callback has returned."""
        self._updates[-1] = {**(self._updates[-1] or {}), **updates}

    def _merge(self, job, topic, plugin, answer, out):
        """Merge the answer of one plugin into `out`; invalid parts are dropped, and logged."""
        wrong = [drop_ignored(answer, topic)]
        is_of_job = topic.startswith("job.")
        if "priority" in answer and is_of_job and job is not None:
            if not validation.is_priority(answer["priority"]):
                self._not_a_priority(job, topic, plugin, answer.pop("priority"))
                out.pop("priority", None)
        why = _why_no_R(job, topic) if "R" in answer else None
        if why is not None:
            wrong.append(why)
            del answer["R"]
        annotations = answer.get("annotations") if is_of_job else None
        if annotations is not None and not isinstance(annotations, dict):
            wrong.append(BAD_ANNOTATIONS)
        elif annotations is not None and job is not None and job.state <= states.SCHED:
            self.service.sched.annotate(job, annotations)
        for text in filter(None, wrong):
            self.report(plugin, topic, JobtapError(text))
        out.update(answer)

    def _not_a_priority(self, job, topic, plugin, priority):
        text = f"{priority!r} is not a priority (0-{states.PRIORITY_MAX})"
        self.report(plugin, topic, JobtapError(text))
        told = topic != "job.priority.get" and job.state != states.INACTIVE
        if type(priority) is not int and told:
            stuck = " (job may be stuck in PRIORITY state)" if job.state == states.PRIORITY else ""
            self.events.raise_exception(job, topic, 4, f"{plugin.name}: {text}{stuck}")

    def report(self, plugin, topic, exc):
        """Log a plugin's exception: one line, and its traceback at debug level."""
        text = describe_for_log(exc, plugin.path, plugin.handlers.find(topic))
        self.service.log(LOG_ERR, f"jobtap: {plugin.name}: {topic}: {text}")
        self.service.log(LOG_DEBUG, trace(exc))

    def job_event(self, job, event):
        """Call job.event.NAME of the plugins that subscribe to `job`."""
        topic = f"job.event.{event['name']}"
        wanted = [entry for entry in self.handlers(topic) if entry[0] in job.subscribers]
        self.call(job, topic, wanted, entry=event)

    # -- jobs coming and going ---------------------------------------------------------------------

    def introduce(self, job):
        """Show a new job to the plugins; Rejected if one of them rejects it."""
        self.call_rejecting(job, "job.create")
        self.call_rejecting(job, "job.validate")
        self.announce_dependencies(job)
        self.call(job, "job.new")

    def announce_dependencies(self, job):
        """Show the job's dependencies to the plugins; Rejected if one is unknown or invalid."""
        for dependency in _dependencies(job):
            scheme = dependency["scheme"]
            topic = f"job.dependency.{scheme}"
            if not self.handlers(topic):
                raise Rejected(f'dependency scheme "{scheme}" not supported')
            self.call_rejecting(job, topic, dependency=dependency)

    def call_rejecting(self, job, topic, **more):
        """Call handlers until one refuses; Rejected if one does."""
        try:
            return self.call_or_raise(job, topic, JobSource(job, more))
        except Rejected:
            raise
        except JobtapError as exc:
            raise Rejected(str(exc)) from exc

    def forget(self, job):
        """`job` is inactive or rejected: drop its subscriptions and auxiliary data."""
        job.subscribers = None
        job.frozen = None
        if job.aux:
            for key in list(job.aux):
                self.free_aux(job, key)
            job.aux = None

    def free_aux(self, job, key):
        """Remove one piece of auxiliary data."""
        if not job.aux or key not in job.aux:
            return
        value, free_fn = job.aux.pop(key)
        if free_fn is not None:
            try:
                free_fn(value)
            except FAILURES as exc:
                self.report(key[0], f"free function of '{key[1]}'", exc)

    # -- loading and removing ------------------------------------------------------------------------

    def load_builtins(self):
        for name in BUILTINS:
            self.load(name, {})

    def load(self, path, args):
        """Load the plugin file `path`, or the builtin plugin of that name; OSError has the text ``flux jobtap`` shows."""
        builtin = BUILTINS.get(path)
        if builtin is not None:
            name = path
        else:
            directories = (
                self.service.config.get("job-manager", {}).get("plugin-searchpath", "").split(":")
            )
            name, full = _find(path, filter(None, directories))
        if any(plugin.name == name for plugin in self.plugins):
            raise OSError(errno.EEXIST, f"{name} already loaded")
        if builtin is not None:
            return self.add(Host(self, name).plugin, builtin)
        plugin = Host(self, name, full, args).plugin
        try:
            with self.guest(plugin):
                init = plugin_file.run_plugin_file(full)
        except OSError as exc:
            self.service.log(LOG_DEBUG, trace(exc.__cause__ or exc))
            self._end(plugin)
            raise
        return self.add(plugin, init)

    def add(self, plugin, init):
        """Add a plugin: call its ``init(plugin)``, show it the configuration and the jobs; OSError if it fails or refuses."""
        self.plugins.append(plugin)
        try:
            with self.guest(plugin):
                read_answer(init(plugin), "plugin_init", plugin.name)
        except FAILURES as exc:
            text = describe(exc, plugin.path)
            self.service.log(LOG_DEBUG, trace(exc))
            self._drop(plugin)
            if plugin.name not in text:
                text = f"{plugin.name}: {text}"
            raise OSError(getattr(exc, "errno", None) or errno.EINVAL, text) from exc
        try:
            self._conf_update(plugin, self.service.config)
        except OSError:
            self._drop(plugin)
            raise
        self.handlers_changed()
        self._announce_jobs(plugin)
        return plugin

    def _announce_jobs(self, plugin):
        """Announce the existing jobs to a new plugin: job.create and job.new, and for those in DEPEND also their
        dependencies and job.state.depend."""
        jobs = [job for job in self.jobs.active.values() if job.state != states.NEW]
        mode = self.hosts[plugin].sort_order
        if mode != "none":
            sign = -1 if mode == "-state" else 1
            jobs.sort(key=lambda job: (sign * job.state, job.id))
        for job in jobs:
            for topic in ("job.create", "job.new"):
                self._call_mine(plugin, job, topic)
            if job.state == states.DEPEND and job.id in self.jobs.active:
                for dependency in _dependencies(job):
                    topic = f"job.dependency.{dependency['scheme']}"
                    self._call_mine(plugin, job, topic, dependency=dependency)
                self._call_mine(plugin, job, "job.state.depend")
        if not isinstance(plugin, Builtin):
            self.service.life.reprioritize_all()

    def _call_mine(self, plugin, job, topic, **more):
        if job.id in self.jobs.active:
            mine = [entry for entry in self.handlers(topic) if entry[0] is plugin]
            self.call(job, topic, mine, **more)

    def remove(self, pattern):
        """Remove the plugins that match a name, ``all`` or a glob; builtins only match one with a dot. OSError ENOENT: none matches."""
        glob = "*" if pattern == "all" else pattern
        matches = [
            plugin
            for plugin in self.plugins
            if plugin.name.startswith(".") == glob.startswith(".")
            and fnmatch.fnmatchcase(plugin.name, glob)
        ]
        if not matches and pattern != "all":
            raise OSError(errno.ENOENT, "Failed to find plugin to remove")
        for plugin in matches:
            self._drop(plugin)

    def _ask(self, plugin, topic, args):
        """Return the answer of one plugin to a topic not about a job; None without a handler."""
        callback = plugin.handlers.find(topic)
        if callback is None:
            return None
        with self.guest(plugin):
            return read_answer(callback(plugin, topic, args), topic, plugin.name)

    def _drop(self, plugin):
        callback = plugin.handlers.exactly("plugin.exit")
        if callback is not None:
            try:
                with self.guest(plugin):
                    callback(plugin, "plugin.exit", FrozenDict())
            except FAILURES as exc:
                self.report(plugin, "plugin.exit", exc)
        self.plugins.remove(plugin)
        for job in [*self.jobs.active.values(), *self.jobs.inactive.values()]:
            if job.subscribers and plugin in job.subscribers:
                job.subscribers.remove(plugin)
            for key in [key for key in job.aux or () if key[0] is plugin]:
                self.free_aux(job, key)
        self.handlers_changed()
        self._end(plugin)

    def _end(self, plugin):
        self.hosts[plugin].end()
        del self.hosts[plugin]

    # -- configuration ---------------------------------------------------------------------------------

    def _conf_update(self, plugin, config):
        conf = config if isinstance(plugin, Builtin) else freeze(config)
        try:
            self._ask(plugin, "conf.update", FrozenDict({"conf": conf}))
        except FAILURES as exc:
            text = brief(exc)
            if not isinstance(exc, JobtapError):
                self.report(plugin, "conf.update", exc)
                text = f"{plugin.name}: conf.update: {text}"
            elif plugin.name not in text and not isinstance(plugin, Builtin):
                text = f"{plugin.name}: {text}"
            raise OSError(errno.EINVAL, text) from exc

    def check_config(self, config):
        """Show a proposed configuration to all plugins (conf.update); OSError (EINVAL) if one refuses it."""
        for plugin in list(self.plugins):
            self._conf_update(plugin, config)

    def configure_plugins(self, config):
        """Load and remove plugins as ``job-manager.plugins`` lists them; OSError if that fails."""
        table = form.check_table(config.get("job-manager"), {"plugins?": [dict]}, "job-manager")
        for i, entry in enumerate(table.get("plugins", ())):
            try:
                if "remove" in entry:
                    self.remove(entry["remove"])
                if "load" in entry:
                    name = entry["load"].rpartition("/")[2]
                    if not any(plugin.name == name for plugin in self.plugins):
                        self.load(entry["load"], entry.get("conf") or {})
            except OSError as exc:
                text = f"[job-manager.plugins][{i}]: {exc.strerror}"
                self.service.log(LOG_ERR, text)
                raise OSError(exc.errno, text) from exc

    # -- requests ------------------------------------------------------------------------------------

    @request("jobtap", form={"load?": str, "conf?": object, "remove?": str, "query_only?": bool})
    def change(self, msg):
        body = msg.body
        if body.get("query_only"):
            return {"plugins": [plugin.name for plugin in self.plugins]}
        if "remove" in body:
            self.remove(body["remove"])
        if "load" in body:
            self.load(body["load"], body.get("conf") or {})
        return None

    @request("jobtap-query")
    def query(self, msg):
        topic, name = "plugin.query", (msg.body or {}).get("name")
        if not isinstance(name, str):
            raise OSError(errno.EINVAL, os.strerror(errno.EPROTO))
        plugin = next((plugin for plugin in self.plugins if plugin.name == name), None)
        if plugin is None:
            raise OSError(errno.EINVAL, f"{name}: plugin not found")
        try:
            more = self._ask(plugin, topic, FrozenDict())
        except FAILURES as exc:
            self.report(plugin, topic, exc)
            raise OSError(errno.EIO, f"{name}: {topic}: {brief(exc)}") from exc
        return {"name": plugin.name, "path": plugin.path, **(more or {})}


def _dependencies(job):
    dependencies = job.jobspec["attributes"]["system"].get("dependencies") or []
    for dependency in dependencies if isinstance(dependencies, list) else [None]:
        if not isinstance(dependency, dict) or not isinstance(dependency.get("scheme"), str):
            raise Rejected("attributes.system.dependencies: expected objects with scheme and value")
        yield dependency


def _why_no_R(job, topic):
    """Return why an answer may not have an R, or None if it may."""
    if job is None or not topic.startswith("job."):
        return None
    if topic != "job.state.sched":
        return "R may only be set in job.state.sched"
    if job.R is not None:
        return "R is already set"
    if not job.flags & states.FLAG_ALLOC_BYPASS:
        return R_WITHOUT_BYPASS
    return None


def _release(views):
    """Release the args of a call that has ended or changed the jobspec; args kept by a plugin keep their values."""
    while views:
        args = views.pop()
        args.release(sys.getrefcount(args) > 2)  # two references are ours


def _find(path, search_path):
    """Locate a plugin, a Python file, by a path or by a name in `search_path` and the examples; OSError (ENOENT) without one.

    ``NAME.so`` stands for ``NAME.py``, so that scripts written for compiled plugins of that name work. Returns (name in
    listings, full path).
    """
    name = os.path.basename(path)
    where = [""] if os.sep in path else [*search_path, os.getcwd(), EXAMPLES]
    for directory in where:
        full = os.path.join(directory, path)
        if full.endswith(".so"):
            full = full[:-3] + ".py"
        if full.endswith(".py") and os.path.isfile(full):
            return name, os.path.abspath(full)
    raise OSError(errno.ENOENT, f"{name}: No such plugin found")
