# SPDX-License-Identifier: LGPL-3.0-or-later
"""The module manager, service ``module``: load, unload, list (RFC 5).

====================  ============================================================================
method                payload -> response
====================  ============================================================================
module.load           ``{path, args?, name?, exec?}`` -> nothing once the module is running (or has
                      returned without error), or the errno and text of its failure. path without a
                      slash is a name, looked up along the broker's search path
module.remove         ``{name}`` -> nothing once it is gone
module.list           -> ``{mods: [{name, path, idle, status, services, sendqueue, recvqueue}]}``
====================  ============================================================================

Some modules are part of the instance. Where one service here stands for several real modules (the KVS keeps its content in memory, so
there is no content store), the other names load a placeholder: scripts that load, list and remove them by name work as on a real host.
"""

import errno
import importlib
import os
from syslog import LOG_CRIT, LOG_DEBUG, LOG_ERR, LOG_WARNING

from greenlet import GreenletExit, getcurrent

from flux_engine.kernel import message
from flux_engine.kernel.message import Message
from flux_engine.kernel.service import Service, request
from flux_engine.modules import pymodule
from flux_engine.modules.pymodule import LOADER, ModuleTask, failure_of

#: Always loaded, before anything else.
PERMANENT = ("overlay", "config", "rexec", "groups", "connector-local")

#: module name -> "package.module:Class", or None for a placeholder
BUILTIN = {
    **dict.fromkeys(("connector-local", "content", "content-sqlite", "content-files", "cron")),
    **dict.fromkeys(("groups", "heartbeat", "kvs-watch", "rexec")),
    "config": "flux_embedded.broker.infra:ConfigService",
    "job-exec": "flux_embedded.services.job_exec.service:JobExec",
    "job-info": "flux_embedded.services.job_info:JobInfo",
    "job-ingest": "flux_embedded.services.job_ingest:JobIngest",
    "job-list": "flux_embedded.services.job_list.service:JobList",
    "job-manager": "flux_embedded.services.job_manager.service:JobManager",
    "kvs": "flux_embedded.services.kvs:Kvs",
    "overlay": "flux_embedded.broker.infra:OverlayService",
    "resource": "flux_embedded.services.resource:Resource",
}

INIT, RUNNING, FINALIZING, EXITED = range(4)


class _Module:
    def __init__(self, name, path, task, service=None):
        self.name = name
        self.path = path
        self.task = task
        self.service = service  # of a builtin module
        self.status = INIT
        self.load_request = None
        self.remove_requests = []


def end_greenlet(task):
    """Kill the greenlet of a task from another one."""
    if task.greenlet is None or task.greenlet.dead:
        return
    task.greenlet.parent = getcurrent()
    task.greenlet.throw(GreenletExit)
    # It may still be resumed, and switching to a dead greenlet switches to its parent.
    task.greenlet.parent = task.kernel.hub


class ModuleManager(Service):
    """Loads modules along the search path `dirs`, and unloads them; `table` has them by name, in order of loading."""

    name = "module"

    def __init__(self, ctx, dirs=()):
        super().__init__(ctx)
        self.dirs = list(dirs)
        self.table = {}

    # -- loading -------------------------------------------------------------------------------

    @request("load", form={"path": str, "args": object, "name?": str}, later=True)
    def load(self, msg):
        body = msg.body
        path, args = body["path"], body["args"]
        if not path:
            raise FileNotFoundError(errno.ENOENT, "module not found in search path")
        if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
            raise OSError(errno.EPROTO, "module.load: args must be an array of strings")
        found = pymodule.find(path, self.dirs, BUILTIN)
        name = body.get("name") or found.name
        if not isinstance(name, str) or "." in name:
            raise OSError(errno.EINVAL, f"name={name!r}: expected a word without dots")
        if name in self.table or name in self.kernel.services:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        # Module arguments are split at white space on their way, on a real host too: no quoting.
        args = tuple(" ".join(args).split())
        if found.builtin:
            module = self._make_builtin(found.name, name, args)
        else:
            task = ModuleTask(self.kernel, name, found.path, args)
            module = _Module(name, found.path, task)
        module.load_request = msg
        self.table[name] = module
        module.task.on_exit = lambda task, exc: self._exited(module, exc)
        self.ctx.log(LOG_DEBUG, f"insmod {name}")
        self._start(module)

    def _make_builtin(self, builtin, name, args):
        target = BUILTIN[builtin]
        where, _, attribute = (target or __name__).partition(":")
        module = importlib.import_module(where)
        cls = getattr(module, attribute) if target else type(builtin, (Service,), {"name": builtin})
        service = cls(self.ctx, *args)
        if name != service.name:
            text = f"{service.name} is part of the instance and cannot be given another name"
            raise OSError(errno.EINVAL, text)
        # With flux-core the others have files of their own, and can be unloaded.
        path = "builtin" if name in PERMANENT else module.__file__
        return _Module(name, path, service, service)

    def _start(self, module):
        if module.service is not None:
            module.service.start()
            # The first item that its reactor handles, when begin() has returned.
            module.task.post(lambda: self._running(module))
            return
        self.ctx.log(LOG_DEBUG, f"{LOADER} {module.name} pid={os.getpid()}")
        module.task.on_running = lambda task: self._running(module)
        self.kernel.add_service(module.name, module.task)
        module.task.start()

    def _running(self, module):
        if module.status == INIT:
            module.status = RUNNING
            self._answer_load(module)

    def _answer_load(self, module, errnum=0, text=None):
        msg, module.load_request = module.load_request, None
        if msg is None:
            return
        if errnum:
            self.respond_error(msg, errnum, text)
        else:
            self.respond(msg)

    # -- the end of a module -----------------------------------------------------------------------

    def _exited(self, module, exc):
        """The module's entry point returned, or raised `exc`."""
        is_new = module.status == INIT
        self._close(module)
        self.ctx.log(LOG_DEBUG, f"module {module.name} exited")
        if exc is None and is_new:
            text = "mod_main() has returned, and no reactor has run: does it call run()?"
            self.ctx.log(LOG_WARNING, f"{module.name}: {text}")
        self._end(module, *(() if exc is None else failure_of(exc, module.path)))

    def _end(self, module, errnum=0, text=None):
        """Remove a module that has ended (`errnum`: by a failure), and answer the requests about it."""
        was_running = module.status != INIT
        module.status = EXITED
        self.table.pop(module.name, None)
        if errnum:
            self.ctx.log(LOG_ERR, f"{module.name}: {text}")
        self._answer_load(module, errnum, text)
        if errnum and was_running:
            self.runtime_failure(module.name)
        for msg in module.remove_requests:
            self.respond(msg)

    def _close(self, module):
        """Remove the task from the instance: requests that it has not handled fail as unknown (RFC 5)."""
        task = module.task
        for name in [name for name, holder in self.kernel.services.items() if holder is task]:
            self.kernel.remove_service(name, task)
        for item in task.inbox:
            if isinstance(item, Message) and item.type == message.REQUEST and item.matchtag:
                task.respond_error(
                    item, errno.ENOSYS, f"No service matching {item.topic} is registered"
                )
        task.close()

    def runtime_failure(self, name):
        """A running module failed: the instance ends, unless ``broker.module-nopanic`` is set."""
        self.ctx.log(LOG_CRIT, f"{name} module runtime failure")
        if not self.ctx.attrs.is_true("broker.module-nopanic") and self.ctx.fatal is not None:
            self.ctx.fatal(f"{name} module runtime failure")

    def kill(self, name, signame="Killed"):
        """End a module as a signal to its process would; KeyError if it is not loaded."""
        module = self.table[name]
        module.task.on_exit = None
        self._close(module)
        end_greenlet(module.task)
        killed = f"loader ({LOADER}) killed by {signame}"
        self._end(module, errno.EIO, killed if module.service is None else "does not end")

    # -- unloading -----------------------------------------------------------------------------

    @request("remove", form={"name": str}, later=True)
    def remove(self, msg):
        name = msg.body["name"]
        module = self.table.get(name)
        if module is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        module.remove_requests.append(msg)
        if module.status == FINALIZING:
            return
        if module.status == RUNNING:
            module.status = FINALIZING
        self.ctx.log(LOG_DEBUG, f"rmmod {name}")
        self.notify(f"{name}.shutdown")

    # -- queries -------------------------------------------------------------------------------

    @request("list", guest=True)
    def list(self, msg):
        return {"mods": [self._describe(module) for module in self.table.values()]}

    def _describe(self, module):
        holds = sorted(
            name for name, holder in self.kernel.services.items() if holder is module.task
        )
        return {
            "name": module.name,
            "path": module.path,
            "idle": max(0, int(self.kernel.time - module.task.last_message)),
            "status": module.status,
            "services": sorted(holds, key=lambda name: name != module.name),
            "sendqueue": 0,
            "recvqueue": len(module.task.inbox),
        }

    def removal_order(self):
        """The names of all modules, Python modules first, since they use the others; within each kind, the latest first."""
        builtin = [
            module.name for module in reversed(self.table.values()) if module.service is not None
        ]
        return self.python_modules() + builtin

    def python_modules(self):
        """Return the names of the Python modules that are loaded, the latest first."""
        return [module.name for module in reversed(self.table.values()) if module.service is None]
