# SPDX-License-Identifier: LGPL-3.0-or-later
"""Run scenarios of commands on a real Flux and keep what they print, for golden_commands.py to replay.

    .venv/bin/python t/python/cmd/record_commands.py [--flux FLUX] [-o DIRECTORY] FILE ...

A FILE is a recording (``.jsonl``: its commands are run anew) or a plain list of commands: first a line ``start:`` with the
arguments of the ``flux start`` around them (``none``: the commands start instances themselves), if need be a line
``between:`` with what is to be done after each scenario; then lines ``== SCENARIO``, each followed by its commands, one a
line.  A command after ``! `` is run, but not compared.  Files beside FILE are known to the commands as ``$D/NAME``.

The recording is written as NAME.jsonl, with the words WORK, DIR, SRC, RUNDIR, PREFIX and HOME for the directories.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from golden_commands import ROOT, TIMEOUT, Group, Line, Replay, environment, load_group


def read_list(path):
    """Return the Group that a plain list of commands describes."""
    heads, entries, scenario = {"start": "none", "between": ""}, [], None
    for text in path.read_text(encoding="utf-8").splitlines():
        key, _, value = text.partition(":")
        if scenario is None and key in heads:
            heads[key] = value.strip()
        elif text.startswith("== "):
            scenario = text[3:].strip()
        elif text.strip() and not text.startswith("#"):
            setup = text.startswith("! ")
            entries.append((scenario, text[2:] if setup else text, setup))
    lines = [
        Line(path.stem, scenario, number, cmd, 0, "", "", setup)
        for number, (scenario, cmd, setup) in enumerate(entries, start=1)
    ]
    return Group(path.stem, heads["start"], heads["between"], lines)


def overlay(flux):
    """The environment in which commands meet a real Flux with this tree's schedulers; no more of ours than they need."""
    known = {"HOME", "LC_ALL", "TZ", "USER", "SHELL", "TERM", "XDG_CONFIG_HOME", "PATH"}
    environ = {name: value for name, value in environment().items() if name in known}
    source = ROOT / "src"
    environ["PATH"] = f"{flux.parent}:{environ['PATH']}"
    environ["FLUX_PYTHONPATH_PREPEND"] = str(source / "bindings" / "python")
    environ["FLUX_MODULE_PATH_PREPEND"] = ":".join(map(str, (source / "modules").glob("sched-*")))
    environ["FLUX_EXEC_PATH_PREPEND"] = str(source / "cmd")
    return environ


def record(group, directory, flux, timeout=TIMEOUT):
    """Run a Group (its files are in ``directory``) on a real Flux; returns its lines as they are kept."""
    prefix = str(flux.resolve().parent.parent)

    def scrub(text):
        text = replay.scrub(text).replace(prefix, "PREFIX")
        return re.sub(r"/tmp/flux-[A-Za-z0-9]{6}\b", "RUNDIR", text)

    with tempfile.TemporaryDirectory(prefix="gold") as scratch:
        replay = Replay(group, directory, Path(scratch), timeout, overlay(flux))
        replay.run()
        if replay.log.strip():
            print(replay.log.rstrip(), file=sys.stderr)
        for line in group.lines:
            if line.outcome in ("hangs", "not run"):
                print(f"{line.scenario}: {line.outcome}, left out: {line.cmd}", file=sys.stderr)
                continue
            rc, stdout, stderr = line.got
            entry = {"scenario": line.scenario, "cmd": line.cmd, "rc": rc}
            entry.update(stdout=scrub(stdout), stderr=scrub(stderr))
            if line.setup:
                entry["setup"] = True
            yield entry


def main(argv=None):
    """Record what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flux", type=Path, help="the flux command of a real instance")
    parser.add_argument("-o", "--output", type=Path, help="directory of the recordings")
    parser.add_argument("-t", "--timeout", type=float, default=TIMEOUT, help="seconds a command")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    args = parser.parse_args(argv)
    flux = args.flux or Path(shutil.which("flux") or "flux")
    if not (flux.parent.parent / "libexec" / "flux").is_dir():
        parser.error(f"{flux} is not the command of a real Flux: name one with --flux")
    for path in args.files:
        group = load_group(path) if path.suffix == ".jsonl" else read_list(path)
        entries = list(record(group, path.parent, flux, args.timeout))
        head = {"start": group.start, "between": group.between}
        output = (args.output or path.parent) / f"{group.name}.jsonl"
        output.write_text(
            "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in [head, *entries]),
            encoding="utf-8",
        )
        print(f"{output}: {len(entries)} commands, {len(group.scenarios())} scenarios")


if __name__ == "__main__":
    main()
