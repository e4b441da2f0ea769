# SPDX-License-Identifier: LGPL-3.0-or-later
"""jobtap: plugins of the job manager.

The API of plugins is ``flux.jobtap``, which a real Flux runs as well. Here is the host: `host` implements its
calls, `stack` loads, calls and removes plugins, and `builtins` are the job manager's own rules, written as plugins.
"""
