"""Messages, services, futures, watchers, tasks and the clock: the base of everything else.

Read `message`, then `kernel`, then `task`; `handle` is the public face (``flux.Flux``) and
`service` the base class of the builtin services.
"""
