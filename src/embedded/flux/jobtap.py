"""jobtap plugins in Python: what ``plugin_init(p)`` and its callbacks use.

A plugin is a file with a function ``plugin_init(p)``, loaded by ``flux jobtap load FILE.py``; `Plugin` says
what `p` can do. Names are those of the C functions without ``flux_jobtap_`` and ``flux_plugin_``. Only the
embedded instance loads Python plugins.
"""

from flux_embedded.services.job_manager.jobtap.plugin import (
    CURRENT_JOB,
    PRIORITY_UNAVAIL,
    JobtapError,
    Plugin,
    Rejected,
)

__all__ = ["CURRENT_JOB", "PRIORITY_UNAVAIL", "JobtapError", "Plugin", "Rejected"]
