# SPDX-License-Identifier: LGPL-3.0-or-later
"""Replaying recorded command lines in a shell inside an embedded instance."""

import json
import os
import re
import socket
import subprocess

from shared import SRCDIR, run

ROOT = str(SRCDIR)

#: The shell that runs the commands: variables live on from one to the next, as when recorded.
DRIVER = """\
n=0
while IFS= read -r -d '' command; do
    n=$((n+1))
    eval "$command" >"$OUT/$n.stdout" 2>"$OUT/$n.stderr" </dev/null
    echo $? >"$OUT/$n.rc"
done 3<&0 <"$OUT/commands"
"""

#: Directories of the recording, and ours.
PATHS = {
    "PREFIX/lib/flux/modules/": "SRCDIR/src/modules/sched-fifo/",
    "PREFIX/lib/flux/connectors": "SRCDIR/src/embedded/flux_embedded/kernel",
    "PREFIX/libexec/flux/cmd": "SRCDIR/src/embedded/flux_embedded/cmd",
}

#: Patterns of text that differs from run to run, and its replacements.
SCRUB = [
    (re.compile(r" *ƒ[1-9A-HJ-NP-Za-km-z]+(?=[^1-9A-HJ-NP-Za-km-z]|$)"), " ƒID"),
    (re.compile(r"\b[0-9]{10}\.[0-9]+\b"), "TS"),
    (re.compile(r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+Z)?"), "DATE"),
    (re.compile(r"\[?\b[A-Z][a-z]{2} ?[0-9]{1,2} [0-9:]{5}(:[0-9.]+ UTC [0-9]{4})?\]?"), "DATE"),
    # a log in human times has the date again when the minute changes
    (re.compile(r"(?m)^(DATE|\[ *\+[0-9.]+\]) (?=[a-z])"), "STAMP "),
    (re.compile(r" *\b[0-9]+\.[0-9]+(s|m|h)\b"), " Ts"),
    (re.compile(r"(?m)^[0-9]+\.[0-9]{6} "), "T "),
    (re.compile(r"pid=[0-9]+"), "pid=N"),
    (re.compile(r"0-shell-f[1-9A-Za-z]+"), "0-shell-fID"),
    (re.compile(r"local://[^ ]*/local-0"), "local://RUNDIR/local-0"),
    (re.compile(r"(?m)^(RUNDIR|/[^ ]*/flux-X)$"), "RUNDIR"),
    (re.compile(r"\b9{9,}\b"), "DIGITS"),
]


def read(path):
    """The recorded lines of a file, by section, in order."""
    sections = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            sections.setdefault(entry["section"], []).append(entry)
    return sections


def personality(name):
    """Options of flux start: the personality of test_under_flux (t/sharness.sh) of this name."""
    if name == "full":
        return []
    if name == "minimal":
        return ["-Sbroker.rc1_path=", "-Sbroker.rc3_path="]
    run = f"flux modprobe run {ROOT}/t/rc"
    return [f"-Sbroker.rc1_path={run}/rc1-{name}.py", f"-Sbroker.rc3_path={run}/rc3.py"]


def environment(**more):
    """The environment of a command outside an instance."""
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    environ = {k: v for k, v in os.environ.items() if k[:5] != "FLUX_" and k not in left_out}
    environ.update(LC_ALL="C.UTF-8", TZ="UTC", USER="root", SHELL="/bin/bash")
    environ["XDG_CONFIG_HOME"] = "/noexist"
    environ["PATH"] = f"{SRCDIR}/src/cmd:{environ['PATH']}"
    environ.update(more)
    return environ


def replay_commands(entries, directory, start=()):
    """Run recorded command lines one after the other in ``user``, below `directory`, by the words `start` of a
    ``flux start``, if any.  Returns (list of (rc, stdout, stderr), one per entry, None for one that did not run; the
    instance's own output)."""
    out = directory / "replay"
    out.mkdir()
    home = directory / "user"
    home.mkdir(exist_ok=True)
    commands = [localize(entry.get("cmd", entry.get("setup"))) for entry in entries]
    (out / "commands").write_text("".join(command + "\0" for command in commands), encoding="utf-8")
    (out / "driver.sh").write_text(DRIVER, encoding="utf-8")
    command = [*start, "bash", out / "driver.sh"]
    pipes = {"stderr": subprocess.STDOUT, "text": False}
    whole = run(*command, cwd=home, env=environment(OUT=str(out)), timeout=600, **pipes)

    def text(name):
        return (out / name).read_bytes().decode("utf-8", "surrogateescape")

    results = []
    for number in range(1, len(commands) + 1):
        try:
            rc = int(text(f"{number}.rc"))
        except (OSError, ValueError):
            results.append(None)
        else:
            results.append((rc, text(f"{number}.stdout"), text(f"{number}.stderr")))
    return results, whole.stdout.decode("utf-8", "surrogateescape")


def localize(command):
    """A recorded command line with this tree's paths."""
    for name, path in PATHS.items():
        command = command.replace(name, path.replace("SRCDIR", ROOT))
    return command


def scrub(text, home=None):
    """Text without the parts that differ from run to run."""
    if home:
        text = text.replace(str(home), "/home/user")
    host = socket.gethostname()
    if host != "vm":
        text = re.sub(rf"\b{re.escape(host)}\b", "vm", text)
    text = text.replace(ROOT, "SRCDIR")
    for name, path in PATHS.items():
        text = text.replace(path, name)
    for pattern, replacement in SCRUB:
        text = pattern.sub(replacement, text)
    return text
