"""The module or service whose code is running."""

from greenlet import getcurrent


def inside_handle():
    """The handle of the module or service that runs in this greenlet, or None."""
    task = getattr(getcurrent(), "task", None)
    return task.handle if task is not None else None
