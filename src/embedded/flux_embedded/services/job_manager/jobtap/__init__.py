"""jobtap: plugins of the job manager.

`plugin` has what a plugin sees (also as ``flux.jobtap``), `stack` loads plugins and calls them, and
`builtins` are the job manager's own rules, written as plugins.
"""
