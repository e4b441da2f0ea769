# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux jobtap`` of a real Flux, for Python plugins as well: ``flux jobtap load limits.py``.

A real job manager loads shared objects. This command, found before Flux's own by FLUX_EXEC_PATH_PREPEND, makes a
directory in the instance's run directory with ``limits.so``, a link to python.so, beside ``limits.py``, a link to the
file, and has Flux's own command load that. Names that end in ``.py`` are those of such plugins; everything else is
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
    """The path of python.so: as FLUX_JOBTAP_PYTHON says, beside us in a source tree, or where job-manager looks."""
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
    return fail("no python.so found: name it with FLUX_JOBTAP_PYTHON=/path/of/python.so")


def find_plugin(path):
    """The Python file that `path` means: a path, a file here, or an example."""
    candidates = [path]
    if "/" not in path:
        candidates.append(os.path.join(os.path.dirname(HERE), "examples", path))
    for candidate in candidates:
        if os.path.isfile(candidate):
            return os.path.realpath(candidate)
    return fail(f"{path} not found")


def make_links(path, python_so):
    """Put NAME.so and NAME.py beside each other; returns the path of NAME.so."""
    name = os.path.basename(path)[: -len(".py")]
    if name == "python":
        fail("python.py: a plugin of this name would hide python.so: give it another")
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
            f"no link to python.so can be made in the run directory of the instance ({exc}). As the instance owner, on"
            f" the host of rank 0, type: flux jobtap load {python_so} file={path}"
        )
    return os.path.join(directory, f"{name}.so")


def load(words):
    """``load [-r NAME] PLUGIN [KEY=VALUE ...]``, with PLUGIN and NAME as Flux's own command wants them."""
    words = list(words)
    i = 0
    while i < len(words):
        word = words[i]
        if word in ("-r", "--remove"):
            if i + 1 < len(words):
                words[i + 1] = compiled_name(words[i + 1])
            i += 2
        elif word.startswith("--remove="):
            words[i] = "--remove=" + compiled_name(word[len("--remove=") :])
            i += 1
        elif word.startswith("-") and len(word) > 1:
            i += 1
        else:
            if word.endswith(".py"):
                words[i] = make_links(find_plugin(word), find_python_so())
            break
    return words


def compiled_name(name):
    return name[: -len(".py")] + ".so" if name.endswith(".py") else name


def flux_command():
    # Flux's own environment: the commands of its libexec directory, and its own flux.
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
