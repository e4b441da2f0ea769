"""``flux.core.handle.Flux``: the handle on an instance."""

from flux_embedded.kernel import handle as _handle


class _Opens(type):
    """Calling the class opens a handle; every handle of the kernel is an instance of it."""

    def __call__(cls, url=None, flags=0, handle=None):
        if handle is not None:
            return handle
        # Imported here: commands that only want the class do not pay for the socket code.
        from flux_embedded.kernel.link import open_handle

        return open_handle(url, flags)

    def __instancecheck__(cls, obj):
        return isinstance(obj, _handle.Flux)


class Flux(_handle.Flux, metaclass=_Opens):
    """A handle on the instance that ``FLUX_URI`` names; inside a module, the module's own.

    Args:
        url (str): ``local://PATH`` in place of ``FLUX_URI``
        flags (int): accepted for the sake of the signature
        handle: a handle to use as it is

    Raises:
        OSError: no instance can be reached
    """
