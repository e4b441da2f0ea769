# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux jobtap`` of a real Flux, extended to Python plugins: ``flux jobtap load limits.py``.

The job manager of a real Flux loads shared objects only. This command, which FLUX_EXEC_PATH_PREPEND
puts before that of Flux, makes two symbolic links in a directory of the instance's run directory:
``limits.so`` to python.so, and ``limits.py`` to the file. Then it runs the command of Flux to load
``limits.so``. Names of plugins that end in ``.py`` are translated likewise; everything else is
passed on as it is.
"""

import os
import subprocess
import sys

import flux

HERE = os.path.dirname(os.path.realpath(__file__))


def fail(text):
    print(f"flux-jobtap: ERROR: {text}", file=sys.stderr)
    sys.exit(1)


def find_python_so():
    """Find python.so: the file that FLUX_JOBTAP_PYTHON names, else in the source tree or installation
    of this command, else on the search path of the job manager."""
    named = os.environ.get("FLUX_JOBTAP_PYTHON")
    if named:
        return os.path.abspath(named)
    done = subprocess.run(
        [flux_command(), "config", "builtin", "jobtap_pluginpath"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        universal_newlines=True,
        check=False,
    )
    # HERE is SOURCE/src/jobtap/cmd or LIBDIR/flux-scheduler/jobtap/cmd.
    places = [os.path.dirname(HERE), os.path.join(HERE, "../../../flux/job-manager/plugins")]
    for place in [*places, *done.stdout.strip().split(":")]:
        path = os.path.join(place, "python.so")
        if os.path.exists(path):
            return os.path.realpath(path)
    return fail("python.so not found: set FLUX_JOBTAP_PYTHON=/path/of/python.so")


def find_plugin(path):
    """Find the Python file of a plugin: a path, or the name of a file in this directory or of an
    example."""
    candidates = [path]
    if "/" not in path:
        candidates.append(os.path.join(os.path.dirname(HERE), "examples", path))
    for candidate in candidates:
        if os.path.isfile(candidate):
            return os.path.realpath(candidate)
    return fail(f"{path} not found")


def make_links(path, python_so):
    """Make the links NAME.so and NAME.py in one directory; returns the path of NAME.so."""
    name = os.path.basename(path)[: -len(".py")]
    if name == "python":
        fail("python.py: a plugin of this name would hide python.so: rename it")
    try:
        directory = os.path.join(flux.Flux().attr_get("rundir"), "jobtap")
        os.makedirs(directory, mode=0o700, exist_ok=True)
        for target, link in ((path, f"{name}.py"), (python_so, f"{name}.so")):
            link = os.path.join(directory, link)
            temporary = f"{link}.{os.getpid()}"
            os.symlink(target, temporary)
            os.replace(temporary, link)
    except OSError as exc:
        fail(
            f"cannot make a link to python.so in the run directory of the instance ({exc}). As the instance owner, on"
            f" the host of rank 0, type: flux jobtap load {python_so} file={path}"
        )
    return os.path.join(directory, f"{name}.so")


def load(args):
    """Translate the arguments ``load [-r NAME] PLUGIN [KEY=VALUE ...]`` for the command of Flux."""
    args = list(args)
    i = 0
    while i < len(args):
        arg = args[i]
        if arg in ("-r", "--remove"):
            if i + 1 < len(args):
                args[i + 1] = compiled_name(args[i + 1])
            i += 2
        elif arg.startswith("--remove="):
            args[i] = "--remove=" + compiled_name(arg[len("--remove=") :])
            i += 1
        elif arg.startswith("-") and len(arg) > 1:
            i += 1
        else:
            if arg.endswith(".py"):
                args[i] = make_links(find_plugin(arg), find_python_so())
            break
    return args


def compiled_name(name):
    """The name of the shared object for a plugin's name."""
    return name[: -len(".py")] + ".so" if name.endswith(".py") else name


def flux_command():
    """The flux command that has the original ``flux jobtap``."""
    return os.environ.get("FLUX_JOBTAP_FLUX", "flux")


def main(argv):
    if argv[:1] == ["load"]:
        argv = ["load", *load(argv[1:])]
    elif argv[:1] in (["remove"], ["query"]):
        argv = [argv[0], *map(compiled_name, argv[1:])]
    environ = dict(os.environ)
    others = [
        part
        for part in environ.get("FLUX_EXEC_PATH_PREPEND", "").split(":")
        if part and os.path.realpath(part) != HERE
    ]
    environ["FLUX_EXEC_PATH_PREPEND"] = ":".join(others)
    os.execvpe(flux_command(), [flux_command(), "jobtap", *argv], environ)


if __name__ == "__main__":
    main(sys.argv[1:])
