# SPDX-License-Identifier: LGPL-3.0-or-later
"""Module arguments of a scheduler: parsing common ones, rejecting unknown ones, and running the
site's Python files that they name.

Each class takes its own arguments in its ``__init__``, after its base class. So the remaining
arguments are known only when the outermost ``__init__`` has returned, to `ChecksArguments`.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
import types
from abc import ABCMeta
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from syslog import LOG_ERR
from typing import Any, Callable

from flux.scheduler.pools import check_pool_class, find_pool_class

OPTIONS = "queue-depth, log-level, pool-class, pool-OPTION, jobspec-bytes, jobspec-values"
LEVELS = "emerg, alert, crit, err, warning, notice, info, debug"


def parse_depth(text: Any, spelling: str | None = None) -> int | str:
    """Parse a queue depth: a positive int, or "unlimited". Raises ValueError, with the spelling of
    the argument, if the value is neither."""
    if text == "unlimited":
        return "unlimited"
    if type(text) is int and text > 0:
        return text
    # isdigit() also accepts digits of other scripts, as does int().
    if isinstance(text, str) and text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise ValueError(
        f"queue-depth={text!r} is invalid: expected a positive integer or 'unlimited'"
        if spelling is None
        else f"{spelling} requires a positive integer, got {text!r}"
    )


def parse_number(name: str, text: str, least: int = 1, expected: str = "a positive integer") -> int:
    """Parse an integer of at least `least`. Raises ValueError if the text is not one."""
    if text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= least:
        return int(text)
    raise ValueError(f"{name}={text!r} is invalid: expected {expected}")


def check_number(name: str, value: Any, most: float) -> None:
    """Raise ValueError unless a class attribute is a number from 0 to `most`."""
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ValueError(f"{name}={value!r} is invalid: expected a number from 0 to {most}")


def parse_level(name: str) -> str:
    """Parse a log level. Raises ValueError if the level is unknown."""
    level = name.lower()
    if level not in LEVELS.split(", "):
        raise ValueError(f"log-level={name!r} is invalid: expected one of {LEVELS}")
    return level


def parse_pool_class(uri: str) -> Any:
    """Load the pool class of a URI. Raises ValueError if it cannot be loaded, or is not a pool
    class."""
    try:
        found = find_pool_class(uri)
    except ValueError as exc:
        raise ValueError(f"pool-class={uri!r}: could not load pool class: {exc}") from None
    return check_pool_class(found)


def take_options(scheduler: Any, args: tuple[str, ...]) -> list[str]:
    """Set the options common to all schedulers, from the module arguments. Return the other
    arguments, for subclasses. Raises ValueError if an argument has a bad value."""
    rest = []
    for arg in args:
        if not isinstance(arg, str):
            raise ValueError(f"argument {arg!r}: expected text: super().__init__(h, *args)")
        name, equals, value = arg.partition("=")
        if name == "queue-depth" and equals:
            scheduler.queue_depth = parse_depth(value)
        elif name == "log-level" and equals:
            scheduler.log.level = parse_level(value)
        elif name == "jobspec-bytes" and equals:
            scheduler.jobspec_bytes = parse_number(name, value)
        elif name == "jobspec-values" and equals:
            scheduler.jobspec_values = parse_number(name, value)
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


def described(exc: Exception) -> str:
    """Return the text of an exception for the log, with its traceback if it is not for users."""
    if isinstance(exc, (OSError, ValueError)):
        return str(exc)
    return "".join(traceback.format_exception(type(exc), exc, exc.__traceback__)).rstrip()


class ChecksArguments(ABCMeta):
    """The class of schedulers' classes: making a scheduler ends with a check for arguments that no
    class took."""

    def __call__(cls, h: Any, *args: str) -> Any:
        try:
            made = super().__call__(h, *args)
            for arg in vars(made).get("_pending_args", ()):
                if arg in (*OPTIONS.split(", "), *made.own_options):
                    raise ValueError(f"argument {arg!r} has no value: expected {arg}=VALUE")
                own = ", ".join(made.own_options)
                raise ValueError(
                    f"unknown argument {arg!r}: built-in options are {OPTIONS}"
                    + (f"; this scheduler also has {own}" if own else "")
                )
        except Exception as exc:
            # The load command shows only an errno; the log has the reason.
            h.log(LOG_ERR, described(exc))
            raise
        return made


def path_and_name(option: str, text: str, what: str = "FUNCTION") -> tuple[str, str]:
    """Split ``FILE:NAME``. Raises ValueError if the text has another form."""
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name.isidentifier():
        raise ValueError(f"{option}={text!r} is invalid: expected FILE:{what}")
    return path, name


def read_code(option: str, text: str, check_owner: bool = True, what: str = "FUNCTION") -> bytes:
    """Return the text of the file in ``FILE:NAME``, the value of an argument or key. With
    `check_owner`, only the instance owner and root may have write access to the file
    (`flux.jobtap.plugin_file`); a simulation, which runs as its user, does without. Raises
    ValueError if the file does not exist, is unreadable, or may not be run."""
    # Imported here: few schedulers run a file.
    from flux.jobtap.plugin_file import PermissionRefused, read_owned

    path, _ = path_and_name(option, text, what)
    try:
        return read_owned(path) if check_owner else Path(path).read_bytes()
    except (PermissionRefused, OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise ValueError(f"{option}={text!r}: {reason}") from None


@contextmanager
def ending_in_value_error(option: str, text: str) -> Iterator[None]:
    """A context for the code of ``FILE:NAME``: any exception, that of ``sys.exit()`` included,
    becomes a ValueError, whose text has the line of the file."""
    try:
        yield
    except (Exception, SystemExit) as exc:
        path = text.rpartition(":")[0]
        lines = [one for one in traceback.extract_tb(exc.__traceback__) if one.filename == path]
        place = f" ({Path(path).name}:{lines[-1].lineno})" if lines else ""
        raise ValueError(f"{option}={text!r}: {type(exc).__name__}: {exc}{place}") from exc


def name_in_file(
    option: str, text: str, check_owner: bool = True, what: str = "FUNCTION"
) -> Callable[..., Any]:
    """Return the function or class named by ``FILE:NAME``; arguments as for `read_code`. Raises
    ValueError if it does not exist, or the file is unreadable, may not be run or fails."""
    path, name = path_and_name(option, text, what)
    source = read_code(option, text, check_owner, what)
    module = types.ModuleType(f"{Path(path).stem}@{Path(path).parent}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look up their module
    with ending_in_value_error(option, text):
        exec(compile(source, path, "exec"), module.__dict__)
    found = getattr(module, name, None)
    if not callable(found):
        raise ValueError(f"{option}={text!r}: no {what.lower()} {name} in {path}")
    return found  # type: ignore[no-any-return]


def import_beside(file: str, name: str) -> types.ModuleType:
    """Import a Python file beside another: ``import`` does not search a module's directory. `file`:
    the importing file, its ``__file__``; `name`: of the other, without ``.py``. Raises ImportError
    if it does not exist, and what it raises."""
    path = Path(file).resolve().with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"{name}@{path.parent}", path)
    if spec is None or spec.loader is None or not path.exists():
        raise ImportError(f"{path}: no such file, which {file} imports", name=name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module
