# SPDX-License-Identifier: LGPL-3.0-or-later
"""The configuration, service ``config``.

====================  ============================================================================
method                payload -> response
====================  ============================================================================
config.get            -> the whole configuration
config.load           the table -> nothing: replaces the whole configuration; every module is
                      told by ``NAME.config-reload``. If one refuses, the former configuration comes
                      back and its reason is the answer
config.reload         -> nothing: reads the files given at start again
====================  ============================================================================
"""

import errno

from flux_engine.formats import config
from flux_engine.kernel.handle import Flux
from flux_engine.kernel.message import NO_SERVICE
from flux_engine.kernel.service import Service, request
from flux_engine.kernel.task import Task


class ConfigService(Service):
    """``config``: get, load and reload. Loads are done one after the other."""

    name = "config"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self._loads = []  # (request, new configuration)

    @request("get", guest=True)
    def get(self, msg):
        self.respond(msg, self.ctx.config)

    @request("load", form={})
    def load(self, msg):
        self._begin(msg, msg.body or {})

    @request("reload")
    def reload(self, msg):
        path = self.ctx.attrs.get("config.path")
        table = {}
        try:
            for part in (path or "").split(":") if path else ():
                table = config.merge(table, config.load_path(part))
        except config.ConfigError as exc:
            raise OSError(errno.EINVAL, str(exc)) from None
        self._begin(msg, table if path else self.ctx.config)

    def _begin(self, msg, table):
        self._loads.append((msg, table))
        if len(self._loads) == 1:
            # In a task of its own: modules may read the configuration meanwhile.
            task = Task(self.kernel, self.name, lambda: self._work(task.handle))
            task.on_exit = lambda task, exc: task.close()
            Flux(task)
            task.start()

    def _work(self, h):
        while self._loads:
            msg, table = self._loads[0]
            try:
                self._replace(h, table)
            except OSError as exc:
                self.respond_error(msg, exc.errno, exc.strerror)
            else:
                self.respond(msg)
            del self._loads[0]

    def _replace(self, h, table):
        """Tell one module after the other, so that the first refusal ends the load."""
        former, self.ctx.config, told = self.ctx.config, table, []
        modules = h.rpc_object("module.list").body["mods"]
        # By name: flux-core tells all at once.
        for name in sorted(mod["name"] for mod in modules if mod["name"] != self.name):
            try:
                h.rpc_object(f"{name}.config-reload", table).response()
            except OSError as exc:
                if exc.errno in NO_SERVICE:
                    continue  # it is gone meanwhile
                self.ctx.config = former
                for other in told:
                    self.notify(f"{other}.config-reload", former)
                raise OSError(exc.errno, f"error updating {name}: {exc.strerror}") from None
            told.append(name)
