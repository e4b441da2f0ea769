"""Messages, services, futures, watchers, tasks and the clock: the base of everything else.

Read `message`, then `kernel`, then `task`; `handle` is the public face (``flux.Flux``) and
`service` the base class of the builtin services.
"""

# Name -> module. Imported on first use: a command needs only the message format, and pays for its
# imports at every start.
_HOMES = {
    "Endpoint": "endpoint",
    "Kernel": "kernel",
    "Message": "message",
    "RealClock": "clock",
    "Task": "task",
    "VirtualClock": "clock",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
