# SPDX-License-Identifier: LGPL-3.0-or-later
"""jobtap: plugins of the job manager.

What plugins see is ``flux.jobtap``, which a real Flux runs as well. Here is the host: `host` does what plugins ask
for, `stack` loads, calls and removes them, and `builtins` are the job manager's own rules, written as plugins.
"""
