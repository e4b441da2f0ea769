# SPDX-License-Identifier: LGPL-3.0-or-later
"""Modules that flux-core's bindings import and few commands use: together two fifths of a command's start-up time."""

import importlib
import sys
from types import ModuleType

#: Module -> names that the bindings take from it when they are imported, to call them later.
NAMES = {
    "flux.utils.parsedatetime": ("Calendar",), "inspect": (), "ipaddress": (), "pydoc": ("ttypager",), "traceback": (),
    "yaml": ("safe_load",),
}  # fmt: skip
if sys.version_info >= (3, 11):
    NAMES["tomllib"] = ("load",)


class Later(ModuleType):
    """Replaces a module in ``sys.modules`` until an attribute of it is used."""

    def __getattr__(self, name):
        if name == "__path__" and self.__name__ != "yaml":
            raise AttributeError(name)  # ``from`` reads it; no submodules of these are imported
        if name in NAMES[self.__name__]:
            return lambda *args: getattr(self._module(), name)(*args)
        return getattr(self._module(), name)

    def _module(self):
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)


def postpone():
    """Postpone the import of the modules that are not imported yet."""
    for name in NAMES.keys() - sys.modules.keys():
        sys.modules[name] = Later(name)
