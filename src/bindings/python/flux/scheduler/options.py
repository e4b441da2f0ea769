# SPDX-License-Identifier: LGPL-3.0-or-later
"""The module arguments of a scheduler: reading those that all have, and refusing unknown ones.

Each class takes its own arguments in its ``__init__``, after that of its base has taken others. So
only when the outermost ``__init__`` returns is it known what is left: `checking_arguments` wraps
each of them for that.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from flux.scheduler.pools import _pool_class_from_uri, check_pool_class

OPTIONS = "queue-depth, log-level, pool-class, pool-OPTION, jobspec-bytes, jobspec-values"
LEVELS = "emerg, alert, crit, err, warning, notice, info, debug"


def parse_depth(text: Any, spelling: str | None = None) -> int | str:
    """A queue depth: a positive int, or "unlimited".

    Args:
        text (str or int): as given
        spelling (str): how the argument was spelled, for the error

    Raises:
        ValueError: it is neither
    """
    if text == "unlimited":
        return "unlimited"
    if type(text) is int and text > 0:
        return text
    # isdigit() also takes digits of other scripts, which int() takes as well.
    if isinstance(text, str) and text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise ValueError(
        f"queue-depth={text!r} is invalid: expected a positive integer or 'unlimited'"
        if spelling is None
        else f"{spelling} requires a positive integer, got {text!r}"
    )


def parse_most(name: str, text: str) -> int:
    """The most that is read of a jobspec.

    Raises:
        ValueError: it is no positive integer
    """
    if text.isascii() and text.isdigit() and len(text) < 16 and int(text) > 0:
        return int(text)
    raise ValueError(f"{name}={text!r} is invalid: expected a positive integer")


def parse_count(name: str, text: str) -> int:
    """A number of pending jobs.

    Raises:
        ValueError: it is no number
    """
    if text.isascii() and text.isdigit():
        return int(text)
    raise ValueError(f"{name}={text!r} is invalid: expected a number of jobs, 0 for none")


def parse_level(name: str) -> str:
    """A level of the log.

    Raises:
        ValueError: there is none of that name
    """
    level = name.lower()
    if level not in LEVELS.split(", "):
        raise ValueError(f"log-level={name!r} is invalid: expected one of {LEVELS}")
    return level


def parse_pool_class(uri: str) -> Any:
    """The class of pools that a URI names.

    Raises:
        ValueError: it cannot be loaded, or is none
    """
    found = _pool_class_from_uri(uri)
    if found is None:
        raise ValueError(f"pool-class={uri!r}: could not load pool class")
    return check_pool_class(found)


def take_options(scheduler: Any, args: tuple[str, ...]) -> list[str]:
    """Set the options of every scheduler from its arguments.

    Args:
        scheduler (Scheduler): whose ``queue_depth``, ``pool_class``, ``pool_options``, ``jobspec_bytes``, ``jobspec_values`` and
            log are set
        args (tuple of str): the module arguments

    Returns:
        list of str: the others, for subclasses to take

    Raises:
        ValueError: one has a bad value
    """
    rest = []
    for arg in args:
        name, equals, value = arg.partition("=")
        if name == "queue-depth" and equals:
            scheduler.queue_depth = parse_depth(value)
        elif name == "log-level" and equals:
            scheduler.log.level = parse_level(value)
        elif name == "jobspec-bytes" and equals:
            scheduler.jobspec_bytes = parse_most(name, value)
        elif name == "jobspec-values" and equals:
            scheduler.jobspec_values = parse_most(name, value)
        elif name == "pool-class" and equals:
            scheduler.pool_class = parse_pool_class(value)
        elif name.startswith("pool-") and equals:
            option = name[len("pool-") :].replace("-", "_")
            scheduler.pool_options = {**scheduler.pool_options, option: value}
        elif arg == "mode=unlimited":
            scheduler.queue_depth = "unlimited"
        elif arg.startswith("mode=limited="):
            scheduler.queue_depth = parse_depth(arg[len("mode=limited=") :], "mode=limited=")
        else:
            rest.append(arg)
    return rest


def checking_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """Wrap a scheduler's ``__init__``, so that the outermost one ends with the check for arguments
    that no class took."""

    @functools.wraps(init)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        depth = self.__dict__.get("_init_depth", 0)
        self.__dict__["_init_depth"] = depth + 1
        try:
            init(self, *args, **kwargs)
            if depth == 0:
                for arg in self.__dict__.get("_pending_args", ()):
                    own = ", ".join(self.own_options)
                    raise ValueError(
                        f"unknown argument {arg!r}: built-in options are {OPTIONS}"
                        + (f"; this scheduler also has {own}" if own else "")
                    )
        except ValueError as exc:
            # The load command shows an errno only: the log is where the reason can be found.
            if depth == 0 and getattr(self, "log", None) is not None:
                self.log.error(str(exc))
            raise
        finally:
            self.__dict__["_init_depth"] = depth

    return wrapper
