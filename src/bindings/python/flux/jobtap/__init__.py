# SPDX-License-Identifier: LGPL-3.0-or-later
"""Plugins of the job manager (jobtap plugins) in Python: API for ``plugin_init(p)`` and callbacks.

A plugin is a file with a function ``plugin_init(p)``; `Plugin` documents `p`. Names are
those of the C functions without ``flux_jobtap_`` and ``flux_plugin_``. The same file runs in the
job manager of a real Flux, through the plugin ``python.so``, and in that of the embedded instance.
The names imported here are public; everything else in this package may change.

Used by both job managers:

=======================  ========================================================================
``plugin.py``            `Plugin`: the API
``validation.py``        checks of all values that plugins pass to the job manager
``callbacks.py``         selection of the callback for a topic, its arguments and return value
``plugin_resources.py``  timers, other watchers and futures: they end with the plugin
``plugin_handle.py``     a plugin's handle
``perilogs.py``          open prologs and epilogs of a plugin
``plugin_file.py``       runs a file of code, if only the instance owner can have written it
``process_guard.py``     keeps plugins from handling signals or ending the process
``errors.py``            exceptions, and their texts for users and for the log
=======================  ========================================================================

Used in a real Flux only, where Python runs inside the C process of the broker:

==========================  =====================================================================
``job_manager_bridge.py``   the functions that ``python.so`` (src/jobtap/python.c) calls, and the
                            host of plugins, which calls the C functions of the job manager
``thread_guard.py``         nothing may block the thread of the job manager
``child_processes.py``      `subprocess.Popen` that works inside a broker, with its helper
                            ``child_process_helper.py``
==========================  =====================================================================

The host of plugins in the embedded instance is ``flux_embedded/services/job_manager/jobtap/``. A
new method of `Plugin` needs a method of the same name in both hosts, its checks in
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
