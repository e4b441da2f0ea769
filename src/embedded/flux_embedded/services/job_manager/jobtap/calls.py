"""Calling of jobtap plugins.

Handlers are looked up once per topic; a topic nobody handles costs one dict lookup. A callback that raises
is logged with its plugin and topic; it fails the operation where the topic can fail (job.create,
job.validate, job.dependency.*, job.update.KEY, conf.update), and nothing else anywhere.
"""

import sys
from contextlib import contextmanager
from types import MappingProxyType

from flux.jobtap import given
from flux.jobtap.args import Args
from flux.jobtap.errors import FAILURES, JobtapError, Rejected, brief, describe, trace
from flux.jobtap.given import PRIORITY_UNAVAIL
from flux.jobtap.handlers import read_answer
from flux_embedded.formats import states
from flux_embedded.formats.levels import LOG_DEBUG, LOG_ERR
from flux_embedded.services.job_manager.jobtap.host import DictSource, Host, JobSource, jobspec_of

NOTHING = {}
#: Topics whose ``priority`` the caller takes itself.
_OWN_PRIORITY = ("job.state.priority", "job.priority.get")


class Calls:
    """The plugins of job manager `jm`, and their handlers.

    Attributes:
        plugins (list): in load order
        host (Host): what plugins ask of the job manager
    """

    def __init__(self, jm):
        self.jm = jm
        self.plugins = []
        self.host = Host(jm)
        self._table = {}
        self._own_rules = set()  # topics that none but the job manager's own rules handle
        self._current = []
        self._updates = []  # what the running callbacks have collected with jobspec_update
        self._guests = []  # plugins whose code runs

    # -- handlers --------------------------------------------------------------------------------

    def handlers_changed(self):
        self._table.clear()
        self._own_rules.clear()

    def _compile(self, topic):
        found = []
        for plugin in self.plugins:
            callback = plugin.handlers.find(topic)
            if callback is not None:
                found.append((plugin, callback))
        if len(self._table) > 1000:
            self.handlers_changed()
        self._table[topic] = found = tuple(found)
        if all(self.host.is_builtin(plugin) for plugin, _ in found):
            self._own_rules.add(topic)
        return found

    def handlers(self, topic):
        """((plugin, callback), ...) for `topic`, in load order."""
        found = self._table.get(topic)
        return self._compile(topic) if found is None else found

    # -- who is running ----------------------------------------------------------------------------

    def current_job(self):
        """The job of the running callback, or None."""
        return self._current[-1] if self._current else None

    @contextmanager
    def guest(self, plugin):
        """While code of `plugin` runs: what it makes on a handle is its own."""
        task = self.jm.task
        former, task.handle = task.handle, plugin.handle
        self._guests.append(plugin)
        try:
            yield
        finally:
            self._guests.remove(plugin)
            task.handle = former

    def is_guest(self):
        """Whether the code that runs now is a plugin's: then the job manager's task is the running one."""
        return bool(self._guests) and self.jm.kernel.running is self.jm.task

    def args_of(self, job, **more):
        """The args mapping of `job` for the job manager's own rules, not copied."""
        args = {
            "jobspec": jobspec_of(job),
            "id": job.id,
            "state": job.state,
            "userid": job.userid,
            "urgency": job.urgency,
            "priority": job.priority,
            "t_submit": job.t_submit,
        }
        if job.R is not None:
            args["R"] = job.R
        if job.end_event is not None:
            args["end_event"] = job.end_event
        if more:
            args.update(more)
        return MappingProxyType(args)

    def source_of(self, job, **more):
        return JobSource(job, more)

    # -- calling -----------------------------------------------------------------------------------

    def call(self, job, topic, **more):
        """Call all handlers of a topic that cannot fail; returns their merged answers."""
        handlers = self._table.get(topic)
        if handlers is None:
            handlers = self._compile(topic)
        if not handlers:
            return NOTHING
        return self._call_each(job, topic, JobSource(job, more), handlers)

    def call_state(self, job, topic, before, event):
        """Call the job.state.* handlers."""
        handlers = self._table.get(topic)
        if handlers is None:
            handlers = self._compile(topic)
        if not handlers:
            return NOTHING
        source = JobSource(job, {"prev_state": before, "entry": event})
        return self._call_each(job, topic, source, handlers)

    def _call_each(self, job, topic, source, handlers):
        out = self._call_stack(job, topic, source, handlers, False)
        if out:
            self._apply(job, topic, out)
        if job.queue and not (job.busy or job.hold):
            self.jm.events.drain(job)
        return out

    def call_or_raise(self, job, topic, source):
        """Call handlers until one refuses; what this raises is a JobtapError with a text for the user."""
        out = self._call_stack(job, topic, source, self.handlers(topic), True)
        if job is not None and job.queue and not (job.busy or job.hold):
            self.jm.events.drain(job)
        return out

    def _call_own_rules(self, job, topic, source, handlers, can_refuse):
        """What most instances do nearly always: nothing needs to be copied, collected or guarded."""
        out = {}
        if isinstance(source, DictSource):
            args = MappingProxyType(source.values)
        else:
            args = self.args_of(job, **source.more)
        self._current.append(job)
        was_busy, job.busy = job.busy, True
        try:
            for plugin, callback in handlers:
                try:
                    answer = callback(plugin, topic, args)
                except FAILURES as exc:
                    self._failed(plugin, topic, exc, can_refuse)
                    continue
                if answer:
                    out.update(answer)
        finally:
            self._current.pop()
            job.busy = was_busy
        return out

    def _failed(self, plugin, topic, exc, can_refuse):
        """A callback has raised: that is logged, or raised anew with a text for the user."""
        if not can_refuse:
            self.report(plugin, topic, exc)
            return
        if isinstance(exc, JobtapError):
            raise exc
        self.report(plugin, topic, exc)
        raise JobtapError(f"{plugin.name}: {topic}: {brief(exc)}") from exc

    def _call_stack(self, job, topic, source, handlers, can_refuse):
        if job is not None and topic in self._own_rules:
            return self._call_own_rules(job, topic, source, handlers, can_refuse)
        out = {}
        views = Views(self, job, source)
        self._current.append(job)
        was_busy = job is not None and job.busy
        if job is not None:
            job.busy = True
        try:
            for plugin, callback in handlers:
                if plugin not in self.host.states:
                    continue  # removed by one before it
                self._updates.append(None)
                try:
                    answer = self._call_one(plugin, callback, topic, views)
                    updates = self._updates[-1]
                    if updates:
                        self.host.post_updates(plugin, job, updates)
                        views.renew()
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
            views.release()
        return out

    def _call_one(self, plugin, callback, topic, views):
        """One callback; returns a dict or None, and raises what it raises or means by its answer."""
        if self.host.is_builtin(plugin):
            return callback(plugin, topic, views.raw())
        with self.guest(plugin):
            answer = callback(plugin, topic, views.frozen())
            if answer is None:
                return None
            answer = read_answer(answer, topic, plugin.name)
        if answer and topic.startswith("job.update.") and answer.get("updates"):
            given.updates(answer["updates"], "updates in the answer")
        return answer

    def collect_updates(self, updates):
        """jobspec_update: they are posted when the callback has returned."""
        self._updates[-1] = {**(self._updates[-1] or {}), **updates}

    def _merge(self, job, topic, plugin, answer, out):
        """Take the answer of one plugin into `out`; what cannot be is dropped, and logged."""
        if "priority" in answer and not self._is_priority(job, topic, plugin, answer["priority"]):
            del answer["priority"]
            out.pop("priority", None)
        if "R" in answer and not self._is_place_for_R(job, topic, plugin):
            del answer["R"]
        annotations = answer.get("annotations")
        if isinstance(annotations, dict) and job is not None and job.state <= states.SCHED:
            self.jm.sched.annotate(job, annotations)
        elif annotations is not None and not isinstance(annotations, dict):
            self.report(plugin, topic, JobtapError("annotations: expected an object"))
        out.update(answer)

    def _is_priority(self, job, topic, plugin, priority):
        if job is None or not topic.startswith("job."):
            return True
        if type(priority) is int and PRIORITY_UNAVAIL <= priority <= given.PRIORITY_MAX:
            return True
        text = f"{priority!r} is not a priority (0-{given.PRIORITY_MAX})"
        self.report(plugin, topic, JobtapError(text))
        if type(priority) is not int and topic != "job.priority.get":
            stuck = " (job may be stuck in PRIORITY state)" if job.state == states.PRIORITY else ""
            self.jm.raise_exception(job, topic, 4, f"{plugin.name}: {text}{stuck}")
        return False

    def _is_place_for_R(self, job, topic, plugin):
        if job is None or not topic.startswith("job."):
            return True
        if topic != "job.state.sched":
            text = "R may only be set in job.state.sched"
        elif job.R is not None:
            text = "R is already set"
        elif not job.flags & states.FLAG_ALLOC_BYPASS:
            text = (
                "R without the flag alloc-bypass: the scheduler will be asked for the job too."
                ' Call job_set_flag(CURRENT_JOB, "alloc-bypass") in job.validate'
            )
        else:
            return True
        self.report(plugin, topic, JobtapError(text))
        return False

    def _apply(self, job, topic, out):
        """A priority may be in the answer to anything."""
        if "priority" in out and topic not in _OWN_PRIORITY and topic.startswith("job."):
            if out["priority"] != PRIORITY_UNAVAIL:
                self.jm.life.set_priority(job, out["priority"])

    def report(self, plugin, topic, exc):
        """Log what a plugin raised: one line, and its traceback for those who debug."""
        self.jm.log(LOG_ERR, f"jobtap: {plugin.name}: {topic}: {describe(exc, plugin.path)}")
        self.jm.log(LOG_DEBUG, trace(exc))

    def job_event(self, job, event):
        """Call job.event.NAME of the plugins that subscribe to `job`."""
        topic = f"job.event.{event['name']}"
        wanted = [entry for entry in self.handlers(topic) if entry[0] in job.subscribers]
        if wanted:
            self._call_each(job, topic, JobSource(job, {"entry": event}), wanted)

    # -- jobs coming and going ---------------------------------------------------------------------

    def introduce(self, job):
        """Show a new job to the plugins.

        Raises:
            Rejected: one of them does not want it
        """
        if self.handlers("job.create"):
            self._call_rejecting(job, "job.create")
        if self.handlers("job.validate"):
            self._call_rejecting(job, "job.validate")
        self.call(job, "job.new")
        self.announce_dependencies(job)

    def announce_dependencies(self, job, plugin=None):
        """Have the plugins, or one of them, look at the job's dependencies (job.dependency.SCHEME).

        Raises:
            Rejected: a dependency nobody knows, or that is not valid
        """
        for dependency in self._dependencies(job):
            scheme = dependency["scheme"]
            topic = f"job.dependency.{scheme}"
            handlers = self.handlers(topic)
            if plugin is not None:
                self._call_each(
                    job,
                    topic,
                    JobSource(job, {"dependency": dependency}),
                    [entry for entry in handlers if entry[0] is plugin],
                )
                continue
            if not handlers:
                raise Rejected(f'dependency scheme "{scheme}" not supported')
            self._call_rejecting(job, topic, dependency=dependency)

    def validate(self, job, jobspec):
        """Have an updated jobspec of `job` validated.

        Raises:
            Rejected: it is not valid
        """
        self._call_rejecting(job, "job.validate", jobspec=jobspec)

    def _call_rejecting(self, job, topic, **more):
        try:
            return self.call_or_raise(job, topic, JobSource(job, more))
        except Rejected:
            raise
        except JobtapError as exc:
            raise Rejected(str(exc)) from exc

    @staticmethod
    def _dependencies(job):
        dependencies = job.jobspec["attributes"]["system"].get("dependencies") or []
        for dependency in dependencies if isinstance(dependencies, list) else [None]:
            if not isinstance(dependency, dict) or not isinstance(dependency.get("scheme"), str):
                raise Rejected(
                    "attributes.system.dependencies: expected objects with scheme and value"
                )
            yield dependency

    def forget(self, job):
        """`job` is inactive or rejected: subscriptions and auxiliary data go."""
        job.subscribers = None
        job.frozen = None
        if job.aux:
            for key in list(job.aux):
                self.free_aux(job, key)
            job.aux = None

    def destroy(self, job):
        self.call(job, "job.destroy")

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


class Views:
    """The args of one call: as they are for the job manager's own rules, unchangeable copies for all others."""

    def __init__(self, calls, job, source):
        self._calls = calls
        self._job = job
        self._source = source
        self._raw = None
        self._frozen = None

    def raw(self):
        if self._raw is None:
            source = self._source
            if isinstance(source, DictSource):
                self._raw = MappingProxyType(source.values)
            else:
                self._raw = self._calls.args_of(self._job, **source.more)
        return self._raw

    def frozen(self):
        if self._frozen is None:
            self._frozen = Args(self._source)
        return self._frozen

    def renew(self):
        """The jobspec of a new job has changed: those who come next see that."""
        if self._job.state == states.NEW:
            self.release()
            self._raw = self._frozen = None

    def release(self):
        if self._frozen is not None:
            # Two references are ours: whoever keeps the args goes on to have what is in them.
            self._frozen.release(sys.getrefcount(self._frozen) > 2)
