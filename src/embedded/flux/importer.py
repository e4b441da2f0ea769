"""Importing plugins: from a package that lies in several directories, or a file."""

import importlib
import importlib.util
import os
import pkgutil
import sys

__all__ = ["import_path", "import_plugins", "import_plugins_pkg"]


def import_path(file_path):
    """Import a file as a module; returns the module."""
    name = os.path.splitext(os.path.basename(file_path))[0]
    spec = importlib.util.spec_from_file_location(name, file_path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def import_plugins_pkg(ns_pkg):
    """Import all modules of a package; returns a dict of them by name.

    Raises:
        ImportError: one of them cannot be imported; the text names it
    """
    found = {}
    for _, name, _ in pkgutil.iter_modules(ns_pkg.__path__):
        try:
            found[name] = importlib.import_module(f"{ns_pkg.__name__}.{name}")
        except ImportError as exc:
            raise ImportError(f"failed to import {name} plugin: {exc}") from None
    return found


def import_plugins(pkg_name, pluginpath=None):
    """Import all modules of a package by its name; none if there is no such package.

    Args:
        pkg_name (str): the package
        pluginpath (list of str): directories to look for it in first
    """
    before = list(sys.path)
    sys.path[1:1] = pluginpath or []
    try:
        return import_plugins_pkg(importlib.import_module(pkg_name))
    except ModuleNotFoundError:
        return {}
    finally:
        sys.path[:] = before
