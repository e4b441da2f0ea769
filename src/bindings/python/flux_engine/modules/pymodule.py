# SPDX-License-Identifier: LGPL-3.0-or-later
"""Broker modules written in Python: execution of the file, and the meaning of its end.

A module runs as a task of the instance's kernel. On a real host it is a process of its own; the
visible effects of that (names, texts, errno of a failed start) are kept.
"""

import collections
import errno
import os
import sys
import traceback
import types

from flux_engine.kernel.handle import Flux
from flux_engine.kernel.task import Task

ModuleFile = collections.namedtuple("ModuleFile", "name path builtin")


def split_path(text):
    """Return the directories of a colon-separated search path, empty entries left out."""
    return [d for d in (text or "").split(":") if d]


def search_path(environ, builtin_dirs):
    """Return the module search path: FLUX_MODULE_PATH_PREPEND, built in, FLUX_MODULE_PATH.

    A caller's own FLUX_MODULE_PATH comes last, so that it adds modules but shadows none.
    A built-in directory that FLUX_MODULE_PATH repeats (a nested instance inherits the composed
    path) is listed once.
    """
    first = split_path(environ.get("FLUX_MODULE_PATH_PREPEND"))
    last = split_path(environ.get("FLUX_MODULE_PATH"))
    return list(dict.fromkeys([*first, *builtin_dirs, *last]))


def module_name(text):
    """Return the module name of a path or name: its last part without suffix."""
    base = os.path.basename(text)
    if base.endswith(".py"):
        return base[:-3]
    stem, dot, _ = base.partition(".so")
    return stem if dot else base


def find(text, dirs, builtins=()):
    """Find the module of a name, or of a path, which contains a slash; returns a ModuleFile. OSError: the load command's text.

    A file on the search path `dirs`, such as a site's own, precedes the builtin module of its name.
    """
    if "/" in text:
        if not os.path.exists(text):
            raise OSError(errno.ENOENT, "No such file or directory")
        if not text.endswith(".py"):
            if ".so" in os.path.basename(text):
                raise OSError(errno.ENOEXEC, f"compiled modules need a real Flux: {text}")
            raise OSError(errno.EINVAL, "could not determine loader from path suffix")
        return ModuleFile(module_name(text), os.path.realpath(text), False)
    for directory in dirs:
        path = os.path.join(directory, text + ".py")
        if os.path.isfile(path):
            return ModuleFile(text, path, False)
    if text in builtins:
        return ModuleFile(text, "builtin", True)
    raise OSError(errno.ENOENT, "module not found in search path")


#: The program that runs a Python module on a real host; its name is part of the error texts.
LOADER = "module-python-exec"


class LoaderExit(Exception):
    """The module's file could not be executed, or it ended the process: an exit code."""

    def __init__(self, code):
        super().__init__(f"loader ({LOADER}) exited with exit code {code}")


class ModuleTask(Task):
    """The task of one Python module.

    Args:
        kernel (Kernel): the kernel
        name (str): the module's name
        path (str): its file
        args (tuple of str): its arguments

    Attributes:
        on_running: None, or ``on_running(task)``, called at the first signal that it runs
    """

    def __init__(self, kernel, name, path, args):
        super().__init__(kernel, name, self._main)
        self.path = path
        self.args = args
        self.on_running = None
        self.running = False
        (kernel.module_handle or Flux)(self)

    def load(self):
        """The entry point: ``mod_main`` or a BrokerModule class."""
        return _load_entry(self.path)

    def _main(self):
        entry = self.load()
        handle = self.handle
        if self.kernel.module_handle is None:
            from _flux.module import module_handle

            handle = module_handle(handle)
        try:
            if isinstance(entry, type):
                entry(handle, *self.args).run()
            else:
                entry(handle, *self.args)
        except SystemExit as exc:
            code = exc.code
            if isinstance(code, str):
                print(code, file=sys.stderr)
                code = 1
            if code:
                raise LoaderExit(code) from None

    def close(self):
        super().close()
        if self.kernel.module_handle is None:
            from _flux.module import forget_futures

            forget_futures(self)

    def set_running(self):
        """The module is running; later calls have no effect."""
        if not self.running:
            self.running = True
            if self.on_running is not None:
                self.on_running(self)

    def reactor_run(self, flags=0):
        self.set_running()
        return super().reactor_run(flags)


def _load_entry(path):
    """Execute the file; return its entry point: ``mod_main`` or a BrokerModule class.

    The module is not entered in ``sys.modules``, and its name is derived from the file's as by the
    real loader: module code can see both, and code that works here must work there.
    """
    module = types.ModuleType(os.path.basename(path).rstrip(".py"))
    module.__file__ = path
    try:
        with open(path, "rb") as stream:
            code = compile(stream.read(), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # loading a module runs its file
    except (Exception, SystemExit) as exc:
        if isinstance(exc, SystemExit):
            raise LoaderExit(exc.code if isinstance(exc.code, int) else 1) from None
        print_traceback(exc, path)
        raise LoaderExit(1) from None
    from flux.brokermod import resolve_entry_point

    try:
        return resolve_entry_point(module)
    except ValueError as exc:
        print(f"flux-{LOADER}.py: {path}: {exc}", file=sys.stderr, flush=True)
        raise LoaderExit(1) from None


def traceback_of(exc, path=None):
    """Return the text of the traceback of an exception from module code, from the module's file on."""
    tb = exc.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename != path:
        tb = tb.tb_next
    tb = tb or (None if isinstance(exc, SyntaxError) else exc.__traceback__)
    return "".join(traceback.format_exception(type(exc), exc, tb))


def print_traceback(exc, path=None):
    print(traceback_of(exc, path), end="", file=sys.stderr, flush=True)


def failure_of(exc, path):
    """Return (errnum, text) of the exception that ended a module; prints its traceback, as its process would."""
    if isinstance(exc, LoaderExit):
        return errno.EIO, str(exc)
    if isinstance(exc, OSError):
        number = exc.errno or errno.ECONNRESET
        return number, os.strerror(number)
    if isinstance(exc, ValueError):
        print(f"{os.path.basename(path)}: {exc}", file=sys.stderr, flush=True)
        return errno.EINVAL, os.strerror(errno.EINVAL)
    print_traceback(exc, path)
    return errno.ECONNRESET, os.strerror(errno.ECONNRESET)
