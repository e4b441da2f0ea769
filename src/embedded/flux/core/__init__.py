"""The handle and the watchers, under the names they have in the host's bindings."""


def __getattr__(name):
    # `import flux` and any part of flux.core make flux.core.handle usable, as on a real Flux.
    if name == "handle":
        import flux.core.handle

        return flux.core.handle
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
