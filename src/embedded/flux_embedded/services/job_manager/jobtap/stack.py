"""The plugins of the job manager: loading, removing, configuring; methods ``jobtap`` and ``jobtap-query``."""

import errno
import fnmatch
import os
from contextlib import nullcontext
from types import MappingProxyType

from flux.jobtap import guard, source
from flux.jobtap.errors import FAILURES, JobtapError, brief, describe, trace
from flux.jobtap.frozen import FrozenDict, freeze
from flux.jobtap.handlers import read_answer
from flux_embedded.formats import states
from flux_embedded.formats.levels import LOG_DEBUG, LOG_ERR
from flux_embedded.formats.policy import json_name
from flux_embedded.services.job_manager.jobtap import loader
from flux_embedded.services.job_manager.jobtap.calls import Calls
from flux_embedded.services.job_manager.jobtap.host import JobSource


class Jobtap(Calls):
    """The plugin stack of job manager `jm`."""

    def __init__(self, jm):
        super().__init__(jm)
        self._configured = None
        self._builtins = {}
        guard.install(self)

    # -- loading and removing ------------------------------------------------------------------------

    def load_builtins(self):
        from flux_embedded.services.job_manager.jobtap.builtins import BUILTINS

        self._builtins = dict(BUILTINS)
        for name in self._builtins:
            self.load(name, {})

    def load(self, path, args):
        """Load the plugin file `path`, or the builtin plugin of that name; returns its `Plugin`.

        Raises:
            OSError: with the text ``flux jobtap`` shows
        """
        builtin = self._builtins.get(path)
        if builtin is not None:
            name, full = path, "builtin"
        else:
            name, full = loader.find(path, self._search_path())
        if any(plugin.name == name for plugin in self.plugins):
            raise OSError(errno.EEXIST, f"{name} already loaded")
        if builtin is not None:
            return self.add(self.host.create_builtin(name), builtin)
        plugin = self.host.create(name, full, args)
        try:
            with self.guest(plugin):
                init = source.run(full)
        except OSError as exc:
            self.jm.log(LOG_DEBUG, trace(exc.__cause__ or exc))
            self.host.end(plugin)
            raise
        return self.add(plugin, init)

    def _search_path(self):
        directory = self.jm.config.get("job-manager", {}).get("plugin-searchpath", "")
        return [part for part in directory.split(":") if part]

    def _entered(self, plugin):
        return nullcontext() if self.host.is_builtin(plugin) else self.guest(plugin)

    def add(self, plugin, init):
        """Take in a plugin: call its ``init(plugin)``, show it the configuration and the jobs there are.

        Raises:
            OSError: it fails, or refuses the configuration; the text says why
        """
        self.plugins.append(plugin)
        try:
            with self._entered(plugin):
                read_answer(init(plugin), "plugin_init", plugin.name)
            self._conf_update(plugin, self.jm.config)
        except FAILURES as exc:
            text = describe(exc, plugin.path)
            if not isinstance(exc, (JobtapError, OSError)):
                self.jm.log(LOG_ERR, f"jobtap: {plugin.name}: plugin_init: {text}")
                self.jm.log(LOG_DEBUG, trace(exc))
            self._drop(plugin)
            if plugin.name not in text:
                text = f"{plugin.name}: {text}"
            raise OSError(getattr(exc, "errno", None) or errno.EINVAL, text) from exc
        self.handlers_changed()
        self._announce_jobs(plugin)
        return plugin

    def _announce_jobs(self, plugin):
        """A new plugin is told of the jobs there are: job.create and job.new, and of those that wait in DEPEND what it
        has to know to let them go."""
        jobs = [job for job in self.jm.jobs.values() if job.state != states.NEW]
        mode = self.host.states[plugin].sort_order
        if mode != "none":
            sign = -1 if mode == "-state" else 1
            jobs.sort(key=lambda job: (sign * job.state, job.id))
        for job in jobs:
            for topic in ("job.create", "job.new"):
                self._call_mine(plugin, job, topic)
            if job.state == states.DEPEND and job.id in self.jm.jobs:
                try:
                    self.announce_dependencies(job, plugin)
                except JobtapError as exc:
                    self.report(plugin, "job.dependency", exc)
                self._call_mine(plugin, job, "job.state.depend")
        if not self.host.is_builtin(plugin):
            self.jm.life.reprioritize_all()

    def _call_mine(self, plugin, job, topic):
        mine = [entry for entry in self.handlers(topic) if entry[0] is plugin]
        if mine and job.id in self.jm.jobs:
            self._call_each(job, topic, JobSource(job, {}), mine)

    def remove(self, pattern):
        """Remove the plugins that match a name, ``all`` or a glob; builtins only if it begins with a dot.

        Raises:
            OSError: ENOENT, no plugin matches
        """
        if pattern == "all":
            matches = [plugin for plugin in self.plugins if not plugin.name.startswith(".")]
        else:
            hidden = pattern.startswith(".")
            matches = [
                plugin
                for plugin in self.plugins
                if plugin.name.startswith(".") == hidden
                and fnmatch.fnmatchcase(plugin.name, pattern)
            ]
            if not matches:
                raise OSError(errno.ENOENT, "Failed to find plugin to remove")
        for plugin in matches:
            self._drop(plugin)

    def _drop(self, plugin):
        callback = (
            plugin.handlers.find("plugin.exit") if plugin.handlers.has("plugin.exit") else None
        )
        if callback is not None:
            try:
                with self._entered(plugin):
                    callback(plugin, "plugin.exit", FrozenDict())
            except FAILURES as exc:
                self.report(plugin, "plugin.exit", exc)
        self.plugins.remove(plugin)
        for job in [*self.jm.jobs.values(), *self.jm.inactive.values()]:
            if job.subscribers and plugin in job.subscribers:
                job.subscribers.remove(plugin)
            for key in [key for key in job.aux or () if key[0] is plugin]:
                self.free_aux(job, key)
        self.handlers_changed()
        self.host.end(plugin)

    # -- configuration ---------------------------------------------------------------------------------

    def _conf_update(self, plugin, config):
        callback = plugin.handlers.find("conf.update")
        if callback is not None:
            with self._entered(plugin):
                conf = config if self.host.is_builtin(plugin) else freeze(config)
                answer = callback(plugin, "conf.update", MappingProxyType({"conf": conf}))
                read_answer(answer, "conf.update", plugin.name)

    def check_config(self, config):
        """Show a proposed configuration to all plugins (conf.update).

        Raises:
            OSError: EINVAL, one of them refuses it
        """
        for plugin in list(self.plugins):
            try:
                self._conf_update(plugin, config)
            except FAILURES as exc:
                text = brief(exc)
                if not isinstance(exc, JobtapError):
                    self.report(plugin, "conf.update", exc)
                    text = f"{plugin.name}: conf.update: {text}"
                elif plugin.name not in text and not self.host.is_builtin(plugin):
                    text = f"{plugin.name}: {text}"
                raise OSError(errno.EINVAL, text) from exc

    def configure_plugins(self, config):
        """Load and remove what ``job-manager.plugins`` lists.

        Raises:
            OSError: a plugin cannot be loaded
        """
        entries = config.get("job-manager", {}).get("plugins", [])
        if entries == self._configured:
            return
        if not isinstance(entries, list):
            raise OSError(errno.EINVAL, "[job-manager.plugins] config must be an array")
        for index, entry in enumerate(entries):
            if not isinstance(entry, dict):
                text = f"[job-manager.plugins][{index}]: Expected object, got {json_name(entry)}"
                raise OSError(errno.EINVAL, text)
        self._configured = entries
        for entry in entries:
            if "remove" in entry:
                self.remove(entry["remove"])
            if "load" in entry:
                name = entry["load"].rpartition("/")[2]
                if not any(plugin.name == name for plugin in self.plugins):
                    self.load(entry["load"], entry.get("conf") or {})

    # -- requests ------------------------------------------------------------------------------------

    def request(self, msg):
        """``jobtap``: {load?, conf?, remove?} -> nothing; {query_only} -> {plugins: [name]}."""
        body = msg.body or {}
        answer = None
        if body.get("query_only"):
            answer = {"plugins": [plugin.name for plugin in self.plugins]}
        else:
            if "remove" in body:
                self.remove(body["remove"])
            if "load" in body:
                self.load(body["load"], body.get("conf") or {})
        self.jm.events.send(self.jm.respond, msg, answer)

    def query(self, msg):
        """``jobtap-query``: {name} -> {name, path, ...} with what plugin.query returns."""
        name = (msg.body or {}).get("name")
        if not isinstance(name, str):
            raise OSError(errno.EINVAL, os.strerror(errno.EPROTO))
        for plugin in self.plugins:
            if plugin.name == name:
                answer = {"name": plugin.name, "path": plugin.path}
                callback = plugin.handlers.find("plugin.query")
                if callback is not None:
                    answer.update(self._query(plugin, callback) or {})
                self.jm.respond(msg, answer)
                return
        raise OSError(errno.EINVAL, f"{name}: plugin not found")

    def _query(self, plugin, callback):
        try:
            with self._entered(plugin):
                return read_answer(
                    callback(plugin, "plugin.query", FrozenDict()), "plugin.query", plugin.name
                )
        except FAILURES as exc:
            self.report(plugin, "plugin.query", exc)
            raise OSError(errno.EIO, f"{plugin.name}: plugin.query: {brief(exc)}") from exc
