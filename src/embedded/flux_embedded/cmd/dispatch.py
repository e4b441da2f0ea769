"""Finding and running the command that a ``flux`` command line names.

Each command is a module with ``main(argv)``, imported only when it is asked for: what a command
costs is mostly what it imports.
"""

import os
import sys

from flux_embedded.cmd.lib import errors

#: command -> (module, style of its messages: "c", "py" or "raw" (the text says it all))
COMMANDS = {
    "R": ("r", "c"),
    "alloc": ("alloc", "py"),
    "batch": ("batch", "py"),
    "bulksubmit": ("bulksubmit", "py"),
    "cancel": ("cancel", "py"),
    "config": ("config", "c"),
    "dmesg": ("dmesg", "c"),
    "env": ("env", "c"),
    "event": ("event", "c"),
    "exec": ("exec_", "c"),
    "getattr": ("attr", "c"),
    "help": ("help", "c"),
    "housekeeping": ("housekeeping", "py"),
    "job": ("job", "c"),
    "jobs": ("jobs", "py"),
    "jobtap": ("jobtap", "py"),
    "kvs": ("kvs", "c"),
    "logger": ("logger", "c"),
    "lsattr": ("attr", "c"),
    "modprobe": ("modprobe", "py"),
    "module": ("module", "c"),
    "overlay": ("overlay", "c"),
    "ping": ("ping", "c"),
    "proxy": ("proxy", "c"),
    "python": ("env", "c"),
    "queue": ("queue", "py"),
    "resource": ("resource", "py"),
    "run": ("run", "py"),
    "setattr": ("attr", "c"),
    "start": ("start", "c"),
    "submit": ("submit", "py"),
    "update": ("update", "py"),
    "uptime": ("uptime", "c"),
    "version": ("version", "c"),
}


def _prepare_streams():
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="surrogateescape")


def _report(name, style, exc):
    """Print what went wrong; returns the exit code."""
    code = exc.code if isinstance(exc, errors.CommandError) else 1
    text = errors.error_text(exc)
    if isinstance(exc, errors.UsageError):
        if text:
            errors.warn(text.rstrip("\n") if text.endswith("\n") else text)
    elif style == "raw" or not name:
        errors.warn(text)
    elif style == "py":
        errors.warn(f"flux-{name}: ERROR: {text}")
    else:
        errors.warn(f"flux-{name}: {text}")
    return code


def _call(name, module, style, argv):
    import importlib

    try:
        command = importlib.import_module("flux_embedded.cmd." + module)
        # one module may serve several commands: it is told which
        if getattr(command, "NAMED", False) is True:
            code = command.main(name, argv)
        else:
            code = command.main(argv)
        sys.stdout.flush()
        return code or 0
    except BrokenPipeError:
        # whoever read our output is gone; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except KeyboardInterrupt:
        return 130
    except errors.NoInstance as exc:
        if style == "py":
            errors.warn(f"flux-{name}: ERROR: Unable to connect to Flux: {exc}")
        else:
            prefix = getattr(command, "OPEN_PREFIX", "flux")
            errors.warn(f"{prefix}: flux_open: {exc.reason}")
        return 1
    except (errors.CommandError, OSError) as exc:
        return _report(name, style, exc)


def _external(name, argv):
    """Run a ``flux-NAME`` found along FLUX_EXEC_PATH, as flux-core does."""
    for directory in os.environ.get("FLUX_EXEC_PATH", "").split(":"):
        if not directory:
            continue
        for path in (f"{directory}/flux-{name}", f"{directory}/flux-{name}.py"):
            if os.access(path, os.X_OK) and os.path.isfile(path):
                os.execv(path, [path, *argv])
            if path.endswith(".py") and os.path.isfile(path):
                os.execv(sys.executable, [sys.executable, path, *argv])


def run(argv=None):
    """Run one command line; returns the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    while argv and argv[0].startswith("-"):
        option = argv.pop(0)
        if option in ("-h", "--help"):
            argv[:] = ["help"]
            break
        if option in ("-V", "--version"):
            argv[:] = ["version"]
            break
        if option in ("-v", "--verbose"):
            continue
        if option in ("-p", "--parent", "-r", "--root"):
            from flux_embedded.cmd.env import enter_parent

            enter_parent(root=option in ("-r", "--root"))
            continue
        word = f"'{option}'"
        errors.warn(f"flux: unrecognized option {word}\nTry `flux --help' for more information.")
        return 1
    if not argv:
        from flux_embedded.cmd.help import USAGE

        sys.stderr.write(USAGE)
        return 1
    name = argv.pop(0)
    entry = COMMANDS.get(name)
    if entry is None:
        _external(name, argv)
        errors.warn(f"flux: `{name}' is not a flux command.  See 'flux --help'")
        return 1
    return _call(name, entry[0], entry[1], argv)
