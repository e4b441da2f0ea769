"""Calling of jobtap plugins.

Handlers are looked up once per topic; a topic nobody handles costs one dict lookup. A callback that raises
is logged with its plugin and topic; it fails the operation where the topic can fail (job.create,
job.validate, job.dependency.*, job.update.KEY, conf.update), and nothing else anywhere.
"""

import fnmatch
import os
import traceback
from types import MappingProxyType

from flux_embedded.formats import states
from flux_embedded.formats.dotted import update_path
from flux_embedded.formats.levels import LOG_DEBUG, LOG_ERR
from flux_embedded.services.job_manager.jobtap import given
from flux_embedded.services.job_manager.jobtap.errors import FAILURES, JobtapError, Rejected

NOTHING = {}
#: What of an answer gets into events and messages.
_POSTED = ("annotations", "R", "updates")


class Calls:
    """The plugins of job manager `jm`, and their handlers.

    Attributes:
        plugins (list): in load order
        validated (Job): the last job in NEW that got past job.validate
    """

    def __init__(self, jm):
        self.jm = jm
        self.plugins = []
        self._table = {}
        self._current = []
        self.validated = None

    # -- handlers --------------------------------------------------------------------------------

    def handlers_changed(self):
        self._table.clear()

    def _compile(self, topic):
        found = []
        for plugin in self.plugins:
            match = None
            for pattern, callback in plugin.handlers:
                if pattern == topic:
                    match = callback
                    break
                if match is None and fnmatch.fnmatchcase(topic, pattern):
                    match = callback
            if match is not None:
                found.append((plugin, match))
        self._table[topic] = found = tuple(found)
        return found

    def handlers(self, topic):
        """((plugin, callback), ...) for `topic`, in load order."""
        found = self._table.get(topic)
        return self._compile(topic) if found is None else found

    # -- calling -----------------------------------------------------------------------------------

    def current_job(self):
        """The job of the running callback, or None."""
        return self._current[-1] if self._current else None

    def args_of(self, job, **more):
        """The args mapping of `job` (the IN table of the jobtap document)."""
        args = {
            "jobspec": job.jobspec,
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

    def call(self, job, topic, **more):
        """Call all handlers of a topic that cannot fail; returns their merged answers."""
        handlers = self._table.get(topic)
        if handlers is None:
            handlers = self._compile(topic)
        if not handlers:
            return NOTHING
        return self._call_each(job, topic, self.args_of(job, **more), handlers)

    def call_state(self, job, topic, before, event):
        """Call the job.state.* handlers."""
        handlers = self._table.get(topic)
        if handlers is None:
            handlers = self._compile(topic)
        if not handlers:
            return NOTHING
        args = self.args_of(job, prev_state=before, entry=event)
        return self._call_each(job, topic, args, handlers)

    def _call_each(self, job, topic, args, handlers):
        out = {}
        self._current.append(job)
        was_busy, job.busy = job.busy, True
        try:
            for plugin, callback in handlers:
                try:
                    answer = callback(plugin, topic, args)
                except FAILURES as exc:  # the plugin's fault, not the instance's
                    self.report(plugin, topic, exc)
                    continue
                if answer:
                    self._take_answer(job, plugin, topic, answer, out)
        finally:
            self._current.pop()
            job.busy = was_busy
        if job.queue and not (was_busy or job.hold):
            self.jm.events.drain(job)
        return out

    def call_or_raise(self, job, topic, args):
        """Call handlers until one raises; what it raises is a JobtapError with a text for the user."""
        out = {}
        self._current.append(job)
        was_busy = job is not None and job.busy
        if job is not None:
            job.busy = True
        try:
            for plugin, callback in self.handlers(topic):
                try:
                    answer = callback(plugin, topic, args)
                except JobtapError:
                    raise
                except FAILURES as exc:
                    self.report(plugin, topic, exc)
                    raise JobtapError(f"{plugin.name}: {topic}: {exc}") from exc
                if answer:
                    self._take_answer(job, plugin, topic, answer, out)
        finally:
            self._current.pop()
            if job is not None:
                job.busy = was_busy
        if job is not None and job.queue and not (was_busy or job.hold):
            self.jm.events.drain(job)
        return out

    def _take_answer(self, job, plugin, topic, answer, out):
        if not isinstance(answer, dict):
            text = f"expected None or a dict, got {type(answer).__name__}"
            self.report(plugin, topic, TypeError(text))
            return
        try:
            answer = {
                **answer,
                **{key: given.plain(answer[key], key) for key in _POSTED if key in answer},
            }
        except OSError as exc:
            self.report(plugin, topic, exc)
            return
        annotations = answer.get("annotations")
        if isinstance(annotations, dict) and job is not None and job.state <= states.SCHED:
            self.jm.alloc.annotate(job, annotations)
        out.update(answer)

    def report(self, plugin, topic, exc):
        """Log what a plugin raised: one line, and its traceback for those who debug."""
        text = str(exc)
        if not isinstance(exc, (JobtapError, OSError)):
            text = f"{type(exc).__name__}: {exc}"
            frames = traceback.extract_tb(exc.__traceback__)
            if frames:
                where = frames[-1]
                text += f" ({os.path.basename(where.filename)}:{where.lineno} in {where.name})"
        self.jm.log(LOG_ERR, f"jobtap: {plugin.name}: {topic}: {text}")
        self.jm.log(
            LOG_DEBUG, "".join(traceback.format_tb(exc.__traceback__)).rstrip() or "no traceback"
        )

    def job_event(self, job, event):
        """Call job.event.NAME of the plugins that subscribe to `job`."""
        topic = f"job.event.{event['name']}"
        wanted = [entry for entry in self.handlers(topic) if entry[0] in job.subscribers]
        if wanted:
            self._call_each(job, topic, self.args_of(job, entry=event), wanted)

    # -- jobs coming and going ---------------------------------------------------------------------

    def introduce(self, job):
        """Show a new job to the plugins.

        Raises:
            Rejected: one of them does not want it
        """
        if self.handlers("job.create"):
            self._call_rejecting(job, "job.create")
        if self.handlers("job.validate"):
            # An update that job.create has posted is still in the queue, and valid only with the rest.
            self._call_rejecting(job, "job.validate", jobspec=_with_queued_updates(job))
        self.validated = job
        self.call(job, "job.new")
        self.announce_dependencies(job)

    def announce_dependencies(self, job):
        """Have the plugins look at the job's dependencies (job.dependency.SCHEME).

        Raises:
            Rejected: a dependency nobody knows, or that is not valid
        """
        for dependency in self._dependencies(job):
            scheme = dependency["scheme"]
            topic = f"job.dependency.{scheme}"
            if not self.handlers(topic):
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
            return self.call_or_raise(job, topic, self.args_of(job, **more))
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


def _with_queued_updates(job):
    """The job's jobspec as it will be when its queue is processed."""
    jobspec = job.jobspec
    for event in job.queue:
        if event["name"] == "jobspec-update":
            for path, value in event["context"].items():
                jobspec = update_path(jobspec, path, value)
    return jobspec
