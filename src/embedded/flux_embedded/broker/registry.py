# SPDX-License-Identifier: LGPL-3.0-or-later
"""The modules that are part of the instance, by their names on a real host.

Where one service here stands for several real modules (the KVS keeps its content in memory, so
there is no content store), the other names load a placeholder: scripts that load, list and remove
them by name work as on a real host.
"""

import importlib

from flux_engine.kernel.service import Service

#: Always loaded, before anything else.
PERMANENT = ("overlay", "config", "rexec", "groups", "connector-local")

#: module name -> "package.module:Class", or None for a placeholder
BUILTIN = {
    "config": "flux_embedded.broker.config_service:ConfigService",
    "connector-local": None,
    "content": None,
    "content-sqlite": None,
    "content-files": None,
    "cron": None,
    "groups": None,
    "heartbeat": None,
    "job-exec": "flux_embedded.services.job_exec.service:JobExec",
    "job-info": "flux_embedded.services.job_info.service:JobInfo",
    "job-ingest": "flux_embedded.services.job_ingest.service:JobIngest",
    "job-list": "flux_embedded.services.job_list.service:JobList",
    "job-manager": "flux_embedded.services.job_manager.service:JobManager",
    "kvs": "flux_embedded.services.kvs.service:Kvs",
    "kvs-watch": None,
    "overlay": "flux_embedded.broker.membership:OverlayService",
    "resource": "flux_embedded.services.resource.service:Resource",
    "rexec": None,
}


def builtin_class(name):
    """Import and return the Service class of builtin module `name`."""
    target = BUILTIN[name]
    if target is None:
        return type(
            name,
            (Service,),
            {"name": name, "__doc__": f"The name of the {name} module; it does nothing."},
        )
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def file_of(name):
    """The file of builtin module `name`; of a placeholder, this one."""
    module = (BUILTIN[name] or __name__).partition(":")[0]
    return importlib.import_module(module).__file__
