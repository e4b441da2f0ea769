"""Running the command that a ``flux`` command line names, and saying what went wrong.

Messages have one of three styles, as flux-core's have: ``flux-getattr: text`` of commands built into ``flux`` (style
builtin), ``flux-job: text`` of programs in C (c), and ``flux-jobs: ERROR: text`` of those in Python (py).
"""

import os
import sys

from flux_embedded.cmd import commands
from flux_embedded.cmd.lib import errors


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
    elif style == "py":
        errors.warn(f"flux-{name}: ERROR: {text}")
    else:
        errors.warn(f"flux-{name}: {text}")
    return code


def _call(name, argv):
    function, style = commands.find(name)
    try:
        code = function(argv)
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
            prefix = "flux" if style == "builtin" else f"flux-{name}"
            errors.warn(f"{prefix}: flux_open: {exc.reason}")
        return 1
    except (errors.CommandError, OSError) as exc:
        return _report(name, style, exc)


#: Commands that come with the schedulers lie here, as they do for a real flux in its own directory.
OWN_COMMANDS = os.path.normpath(os.path.join(os.path.dirname(__file__), "../../../cmd"))


def _external(name, argv):
    """Run a ``flux-NAME.py`` or ``flux-NAME``, looked for where and in the order that flux-core does."""
    path = []
    for value in (
        os.environ.get("FLUX_EXEC_PATH_PREPEND", ""),
        OWN_COMMANDS,
        os.environ.get("FLUX_EXEC_PATH", ""),
        os.environ.get("PATH", ""),
    ):
        path += [directory for directory in value.split(":") if directory]
    for directory in path:
        script = f"{directory}/flux-{name}.py"
        if os.path.isfile(script) and os.access(script, os.X_OK):
            prepend = os.pathsep.join(sys.path[:2])
            inherited = os.environ.get("PYTHONPATH")
            os.environ["PYTHONPATH"] = f"{prepend}:{inherited}" if inherited else prepend
            os.execv(sys.executable, [sys.executable, script, *argv])
        command = f"{directory}/flux-{name}"
        if os.path.isfile(command) and os.access(command, os.X_OK):
            os.execv(command, [command, *argv])


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
        from flux_embedded.cmd.help import usage

        sys.stderr.write(usage())
        return 1
    name = argv.pop(0)
    if name not in commands.COMMANDS:
        _external(name, argv)
        errors.warn(f"flux: `{name}' is not a flux command.  See 'flux --help'")
        return 1
    return _call(name, argv)
