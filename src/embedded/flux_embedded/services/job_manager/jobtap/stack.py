"""The plugins of the job manager: loading, removing, configuring; methods ``jobtap`` and ``jobtap-query``."""

import errno
import fnmatch
from types import MappingProxyType

from flux_embedded.formats import states
from flux_embedded.services.job_manager.jobtap import given, loader
from flux_embedded.services.job_manager.jobtap.calls import Calls
from flux_embedded.services.job_manager.jobtap.errors import FAILURES, JobtapError
from flux_embedded.services.job_manager.jobtap.plugin import Plugin

#: Order of jobs for a plugin that asks for ``state``.
_LOAD_ORDER = {
    states.PRIORITY: 0,
    states.DEPEND: 1,
    states.SCHED: 2,
    states.RUN: 3,
    states.CLEANUP: 4,
}


class Jobtap(Calls):
    """The plugin stack of job manager `jm`."""

    def __init__(self, jm):
        super().__init__(jm)
        self._configured = None
        self._builtins = {}

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
        return self._add(Plugin(self.jm, name, full, args), builtin or loader.load(full))

    def _search_path(self):
        directory = self.jm.config.get("job-manager", {}).get("plugin-searchpath", "")
        return [part for part in directory.split(":") if part]

    def _add(self, plugin, init):
        self.plugins.append(plugin)
        try:
            init(plugin)
            self._conf_update(plugin, self.jm.config)
        except FAILURES as exc:
            if not isinstance(exc, (JobtapError, OSError)):
                self.report(plugin, "plugin_init", exc)
            self._drop(plugin)
            raise OSError(
                getattr(exc, "errno", None) or errno.EINVAL, f"{plugin.name}: {exc}"
            ) from exc
        self.handlers_changed()
        self._announce_jobs(plugin)
        return plugin

    def _announce_jobs(self, plugin):
        """A new plugin is told of the jobs there are (job.create, job.new)."""
        jobs = [job for job in self.jm.jobs.values() if job.state != states.NEW]
        if plugin.load_sort_order:
            sign = -1 if plugin.load_sort_order == "-state" else 1
            jobs.sort(key=lambda job: (sign * _LOAD_ORDER[job.state], job.id))
        for job in jobs:
            for topic in ("job.create", "job.new"):
                mine = [entry for entry in self.handlers(topic) if entry[0] is plugin]
                if mine and job.id in self.jm.jobs:
                    self._call_each(job, topic, self.args_of(job), mine)

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
                raise OSError(errno.ENOENT, f"{pattern} not found")
        for plugin in matches:
            self._drop(plugin)

    def _drop(self, plugin):
        try:
            exit_callbacks = [cb for topic, cb in plugin.handlers if topic == "plugin.exit"]
            for callback in exit_callbacks:
                callback(plugin, "plugin.exit", MappingProxyType({}))
        except FAILURES as exc:
            self.report(plugin, "plugin.exit", exc)
        self.plugins.remove(plugin)
        for method in plugin.services:
            self.jm.remove_method(method)
        for job in [*self.jm.jobs.values(), *self.jm.inactive.values()]:
            if job.subscribers and plugin in job.subscribers:
                job.subscribers.remove(plugin)
            for key in [key for key in job.aux or () if key[0] is plugin]:
                self.free_aux(job, key)
        self.handlers_changed()
        self._end_perilogs(plugin)

    def _end_perilogs(self, plugin):
        """Nobody is left to finish what `plugin` has open: that failed, and a job whose prolog failed does not run."""
        for job, kind, description in plugin.perilogs:
            if job.state not in (states.RUN, states.CLEANUP):
                continue
            severity = 0 if kind == "prolog" else 1
            note = f"plugin {plugin.name} was removed during {kind} {description!r}"
            self.jm.raise_exception(job, kind, severity, note)
            self.jm.events.post(
                job, f"{kind}-finish", {"description": description, "status": 1 << 8}
            )
        plugin.perilogs = []

    # -- configuration ---------------------------------------------------------------------------------

    def _conf_update(self, plugin, config):
        for owner, callback in self.handlers("conf.update"):
            if owner is plugin:
                callback(plugin, "conf.update", MappingProxyType({"conf": config}))

    def check_config(self, config):
        """Show a proposed configuration to all plugins (conf.update).

        Raises:
            OSError: EINVAL, one of them refuses it
        """
        try:
            self.call_or_raise(None, "conf.update", MappingProxyType({"conf": config}))
        except JobtapError as exc:
            raise OSError(errno.EINVAL, str(exc)) from exc

    def configure_plugins(self, config):
        """Load and remove what ``job-manager.plugins`` lists.

        Raises:
            OSError: a plugin cannot be loaded
        """
        entries = config.get("job-manager", {}).get("plugins", [])
        if entries == self._configured:
            return
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
        """``jobtap``: {load?, args?, remove?, query_only?} -> {plugins: [name]}."""
        body = msg.body or {}
        if not body.get("query_only"):
            if body.get("remove"):
                self.remove(body["remove"])
            if body.get("load"):
                self.load(body["load"], body.get("args") or body.get("conf") or {})
        names = [plugin.name for plugin in self.plugins]
        self.jm.events.send(self.jm.respond, msg, {"plugins": names})

    def query(self, msg):
        """``jobtap-query``: {name} -> {name, path, ...} with what plugin.query returns."""
        name = msg.body["name"]
        for plugin in self.plugins:
            if plugin.name == name:
                answer = {"name": plugin.name, "path": plugin.path}
                for owner, callback in self.handlers("plugin.query"):
                    if owner is plugin:
                        try:
                            found = callback(plugin, "plugin.query", MappingProxyType({})) or {}
                            answer.update(given.plain(found, "plugin.query"))
                        except FAILURES as exc:
                            self.report(plugin, "plugin.query", exc)
                            raise OSError(errno.EIO, f"{name}: plugin.query: {exc}") from exc
                self.jm.respond(msg, answer)
                return
        raise OSError(errno.ENOENT, f"{name} not found")
