# SPDX-License-Identifier: LGPL-3.0-or-later
"""jobtap plugins in Python: what ``plugin_init(p)`` and its callbacks use.

A plugin is a file with a function ``plugin_init(p)``; `Plugin` says what `p` can do. Names are those of the C
functions without ``flux_jobtap_`` and ``flux_plugin_``. The same file runs in the job manager of a real Flux
(through the plugin ``python.so``) and in that of the embedded instance.
"""

from flux.jobtap.errors import JobtapError, Rejected
from flux.jobtap.validation import CURRENT_JOB, PRIORITY_UNAVAIL
from flux.jobtap.plugin import Plugin

__all__ = ["CURRENT_JOB", "PRIORITY_UNAVAIL", "JobtapError", "Plugin", "Rejected"]
