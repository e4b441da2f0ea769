"""Properties that are worked out once."""

import functools

__all__ = ["memoized_property"]


def memoized_property(fget):
    """A property whose value is kept with the object when it was first asked for."""
    name = f"_{fget.__name__}"

    @functools.wraps(fget)
    def get(self):
        if not hasattr(self, name):
            setattr(self, name, fget(self))
        return getattr(self, name)

    return property(get)
