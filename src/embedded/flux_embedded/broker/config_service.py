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
from flux_engine.kernel.service import Service, request


class ConfigService(Service):
    """``config``: get, load and reload. Loads are done one after the other."""

    name = "config"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.loading = None  # (request, former configuration, modules told so far, modules to tell)
        self.waiting = []

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
        if self.loading is not None:
            self.waiting.append((msg, table))
            return
        self.loading = (msg, self.ctx.config, [])
        self.ctx.config = table
        self.rpc("module.list").then(self._tell_all)

    def _tell_all(self, future):
        names = [mod["name"] for mod in future.body["mods"] if mod["name"] != self.name]
        # By name: flux-core tells all at once.
        self._tell(sorted(names))

    def _tell(self, names):
        """Tell one module after the other, so that the first refusal ends the load."""
        msg, former, told = self.loading
        if not names:
            self._end()
            self.respond(msg)
            return
        name = names[0]
        told.append(name)
        self.rpc(f"{name}.config-reload", self.ctx.config).then(self._told, names[1:])

    def _told(self, future, names):
        told = self.loading[2]
        try:
            future.get()
        except OSError as exc:
            if exc.errno not in (
                errno.ENOSYS,
                errno.EHOSTUNREACH,
            ):  # modules that are gone meanwhile
                self._undo(told[-1], exc)
                return
        self._tell(names)

    def _undo(self, name, exc):
        msg, former, told = self.loading
        self.ctx.config = former
        for other in told[:-1]:
            self.notify(f"{other}.config-reload", former)
        self._end()
        self.respond_error(msg, exc.errno, f"error updating {name}: {exc.strerror}")

    def _end(self):
        self.loading = None
        if self.waiting:
            self._begin(*self.waiting.pop(0))
