# SPDX-License-Identifier: LGPL-3.0-or-later
"""Plugins of the job manager (jobtap plugins) in Python: API for ``plugin_init(p)`` and callbacks.

A plugin is a file with a function ``plugin_init(p)``; `Plugin` documents `p`. Names are
those of the C functions without ``flux_jobtap_`` and ``flux_plugin_``. The same file runs in the
job manager of a real Flux, through the plugin ``python.so``, and in that of the embedded instance.
The names imported here are public; everything else in this package may change.

The host in a real Flux is ``job_manager_bridge.py``, called by ``python.so`` (src/jobtap/python.c); only it uses ``thread_guard.py`` and
``child_processes.py``, since there Python runs inside the broker. The host in the embedded instance is
``flux_embedded/services/job_manager/jobtap/``. A new method of `Plugin` needs a method of the same name in both, its checks in
``validation.py``, a line in doc/guide/jobtap.rst, and a test that runs on both: t/jobtap/same.py.
"""

from flux.jobtap.errors import JobtapError, Rejected
from flux.jobtap.plugin import Plugin
from flux.jobtap.validation import CURRENT_JOB, PRIORITY_UNAVAIL
from flux_engine.formats.jobspec import count_resources

__all__ = [
    "CURRENT_JOB",
    "PRIORITY_UNAVAIL",
    "JobtapError",
    "Plugin",
    "Rejected",
    "count_resources",
]
