# SPDX-License-Identifier: LGPL-3.0-or-later
"""A site's Python code run by a scheduler in addition to the policy: rank functions, and rules."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any, Callable


def path_and_name(option: str, text: str, what: str = "FUNCTION") -> tuple[str, str]:
    """Split ``FILE:NAME``.

    Raises:
        ValueError: the text has another form
    """
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name.isidentifier():
        raise ValueError(f"{option}={text!r} is invalid: expected FILE:{what}")
    return path, name


def read_code(option: str, text: str, check_owner: bool = True, what: str = "FUNCTION") -> bytes:
    """Return the text of the file in ``FILE:NAME``.

    Args:
        option (str): name of the argument or key, for errors
        text (str): the value
        check_owner (bool): whether only the instance owner and root may have write access to the
            file (`flux.jobtap.owned_file`); not needed in a simulation, which runs as its user
        what (str): the noun for the name in the file, for errors

    Raises:
        ValueError: the file does not exist, is unreadable, or may not be run
    """
    # Imported here: few schedulers run a file.
    from flux.jobtap.owned_file import PermissionRefused, read_owned

    path, _ = path_and_name(option, text, what)
    try:
        return read_owned(path) if check_owner else Path(path).read_bytes()
    except PermissionRefused as exc:
        raise ValueError(f"{option}={text!r}: {exc}") from None
    except (OSError, ValueError) as exc:
        raise ValueError(f"{option}={text!r}: {type(exc).__name__}: {exc}") from None


def name_in_file(
    option: str, text: str, check_owner: bool = True, what: str = "FUNCTION"
) -> Callable[..., Any]:
    """Return the function or class named by ``FILE:NAME``; arguments as for `read_code`.

    Raises:
        ValueError: it does not exist, or the file is unreadable, may not be run or fails
    """
    path, name = path_and_name(option, text, what)
    source = read_code(option, text, check_owner, what)
    try:
        spec = importlib.util.spec_from_loader(Path(path).stem, loader=None, origin=path)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        module.__file__ = path
        exec(compile(source, path, "exec"), module.__dict__)
    except Exception as exc:
        raise ValueError(f"{option}={text!r}: {type(exc).__name__}: {exc}") from exc
    found = getattr(module, name, None)
    if not callable(found):
        raise ValueError(f"{option}={text!r}: no {what.lower()} {name} in {path}")
    return found  # type: ignore[no-any-return]


def import_beside(file: str, name: str) -> types.ModuleType:
    """Import a Python file from the directory of another: ``import`` does not search the directory
    of a broker module.

    Args:
        file (str): the importing file, its ``__file__``
        name (str): name of the imported file, without ``.py``

    Raises:
        ImportError: the file does not exist
        Exception: raised by the file
    """
    path = Path(file).resolve().with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"{name}@{path.parent}", path)
    if spec is None or spec.loader is None or not path.exists():
        raise ImportError(f"{path}: no such file, which {file} imports", name=name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module
