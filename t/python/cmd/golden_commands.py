# SPDX-License-Identifier: LGPL-3.0-or-later
"""Replay recorded scenarios of commands in embedded instances and say what comes out alike.

``golden/commands`` of the recorded data (see shared.py) has a file a group: the arguments of the ``flux start`` around
it, then one command a line.  Each group runs in an instance of its own, each scenario of it in a shell and a directory of
its own, one after the other, as when they were recorded.  Standard output and exit status are compared: job ids by their
order of appearance, with times, process ids and directories replaced.

As a command it prints a table::

    .venv/bin/python t/python/cmd/golden_commands.py [-v] [-j N] [GROUP | SCENARIO ...]

With ``-v`` every command that came out otherwise is shown with what was recorded; a name of a scenario runs the whole
group it belongs to (scenarios of a group build on one another), and shows that scenario only.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import shared
from golden_known import PARTS, RULES, SET_ASIDE, UNORDERED

ROOT = Path(__file__).resolve().parents[3]

#: Seconds a command may take before what it started is killed; the slowest recorded one takes 20.
TIMEOUT = 60

#: One scenario: its commands come as number, command, number, command, ...; variables live on.
SCENARIO = """\
echo $$ >"$OUT/pid"
while IFS= read -r -d '' number && IFS= read -r -d '' command; do
    echo "$number" >"$OUT/now"
    eval "$command" >"$OUT/$number.stdout" 2>"$OUT/$number.stderr" </dev/null
    echo $? >"$OUT/$number.rc"
done 3<&0 <"$OUT/commands"
"""

#: A group: every scenario of it in its directory, and what is to be done between two of them.
GROUP = """\
for out in "$ALL"/[0-9]*/; do
    OUT=${out%/}
    export OUT
    cd "$(cat "$OUT/directory")" || exit 1
    bash "$ALL/scenario.sh"
    eval "$BETWEEN" >"$OUT/between" 2>&1 </dev/null
done
"""

#: A job id in one of its forms.
ID = re.compile(
    r"ƒ[1-9A-HJ-NP-Za-km-z]+"
    r"|\bf(?=[A-Za-z]*[0-9])[1-9A-HJ-NP-Za-km-z]{6,}\b"
    r"|\b0x[0-9a-f]{8,}\b"
    r"|\b(?:job\.)?[0-9a-f]{4}(?:\.[0-9a-f]{4}){3}\b"
    r"|\b[0-9]{11,20}\b(?!\.)"
)

#: What differs from run to run, and what it is replaced by.
SCRUB = [
    (re.compile(r"\b[0-9]{10}\.[0-9]+\b"), "TIME"),
    (re.compile(r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?(Z|\+[0-9:]+)?"), "TIME"),
    (re.compile(r"\[?\b[A-Z][a-z]{2} ?[0-9]{1,2} [0-9:]{5}(:[0-9.]+ UTC [0-9]{4})?\]?"), "TIME"),
    (re.compile(r"(?<=begin@)([A-Z][a-z]{2}[0-9]{2}-)?[0-9]{2}:[0-9]{2}(:[0-9]{2})?\b"), "TIME"),
    (re.compile(r"\b[0-9]{2}:[0-9]{2}:[0-9]{2}\b"), "TIME"),
    (re.compile(r"\[? *\+[0-9.]+\]"), "TIME"),
    (re.compile(r"\b[0-9]+\.[0-9]+(s|m|h)\b"), "TIME"),
    (re.compile(r"(?m)^[0-9]+\.[0-9]{6} "), "TIME "),
    (re.compile(r"\bpid[ =][0-9]+"), "pid N"),
    (re.compile(r"local://[^ ]*/local-0"), "local://RUNDIR/local-0"),
    (re.compile(r"(RUNDIR|/[^\s'\"]*/flux-[A-Za-z0-9_]{6,8})\b"), "RUNDIR"),
    (re.compile(r'(^job-ingest\.getinfo  -> \{"timestamp": )[0-9]+', re.M), r"\1N"),
    # limits of the machine that recorded
    (re.compile(r'"(nofile|nproc|stack|core|memlock|sigpending)": ?-?[0-9]+'), r'"\1":N'),
]


@dataclasses.dataclass
class Line:
    """A recorded command line, and what became of it here."""

    group: str
    scenario: str
    number: int
    cmd: str
    rc: int
    stdout: str
    stderr: str
    setup: bool = False
    #: what came out here: (rc, stdout, stderr), None if it did not run
    got: tuple = None
    #: equal, set aside, rc, stdout, rc+stdout, hangs, not run
    outcome: str = "not run"
    #: why the line need not be alike
    reason: str = None


@dataclasses.dataclass
class Group:
    """A file of recorded commands."""

    name: str
    start: str
    between: str
    lines: list

    def scenarios(self):
        """Name -> lines, in order."""
        found = {}
        for line in self.lines:
            found.setdefault(line.scenario, []).append(line)
        return found


def load(directory=None):
    """Return the recorded groups, by name; none without the data."""
    directory = directory or (shared.data_dir() and shared.data_dir() / "golden" / "commands")
    paths = sorted(directory.glob("*.jsonl")) if directory else []
    return {path.stem: load_group(path) for path in paths}


def load_group(path):
    """Return the recorded group of a file."""
    with open(path, encoding="utf-8") as stream:
        head, *entries = map(json.loads, stream)
    lines = [
        Line(path.stem, number=number, **entry) for number, entry in enumerate(entries, start=1)
    ]
    for line in lines:
        line.reason = reason(line)
    return Group(path.stem, head["start"], head["between"], lines)


def reason(line):
    """Why a line need not be alike, or None."""
    for pattern, text in SET_ASIDE.get(line.scenario, ()):
        if re.search(pattern, line.cmd):
            return text
    for pattern, text in RULES:
        if re.search(pattern, f"{line.cmd}\n{line.stdout}\n{line.stderr}"):
            return text
    return None


def environment():
    """The environment of a command that knows nothing of an instance."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FLUX_") and name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    }
    environ.update(LC_ALL="C.UTF-8", TZ="UTC", USER="root", SHELL="/bin/bash")
    environ["XDG_CONFIG_HOME"] = "/noexist"
    environ["PATH"] = f"{ROOT / 'src' / 'cmd'}:{environ['PATH']}"
    return environ


def descendants(pid):
    """Return the ids of the processes that ``pid`` started, and of what those started."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = Path("/proc", entry, "stat").read_text()
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found, left = [], [pid]
    while left:
        some = children.get(left.pop(), [])
        found += some
        left += some
    return found


class Replay:
    """One group, run in a directory of its own.

    Args:
        group: a Group; the outcome is written into its lines.
        data: the directory of the recorded commands (a Path).
        directory: scratch (a Path).
        timeout: seconds a command may take.
        environ: the environment of the commands, by default one that knows nothing of an instance.
    """

    def __init__(self, group, data, directory, timeout=TIMEOUT, environ=None):
        self.group = group
        self.work = directory / "WORK"
        self.all = directory / "ALL"
        self.data = directory / "DIR"
        self.timeout = timeout
        self.log = ""
        self.environ = dict(environ or environment())
        shutil.copytree(data, self.data, copy_function=shutil.copyfile)
        self.data.chmod(0o755)
        self.work.mkdir()
        self.all.mkdir()
        for path in self.data.glob("*.toml"):
            path.write_text(path.read_text().replace("@D@", str(self.data)))

    def localize(self, text):
        """A recorded text with our directories."""
        text = re.sub(r"\bDIR/", f"{self.data}/", text)
        return re.sub(r"\bSRC/", f"{ROOT}/", text)

    def scrub(self, text):
        """Our text with the directories as they were recorded."""
        for path, name in ((self.work, "WORK"), (self.data, "DIR"), (ROOT, "SRC")):
            text = text.replace(str(path), name)
        home = os.environ.get("HOME")
        if home and home != "/":
            text = re.sub(rf"(?<![\w/]){re.escape(home)}\b", "HOME", text)
        host = socket.gethostname()
        return text if host == "vm" else re.sub(rf"\b{re.escape(host)}\b", "vm", text)

    def run(self):
        """Run all scenarios, then fill in what came out and compare it."""
        self._write()
        self.environ.update(ALL=str(self.all), D=str(self.data))
        self.environ["BETWEEN"] = self.localize(self.group.between)
        words = ["bash", str(self.all / "group.sh")]
        if self.group.start != "none":
            words = ["flux", "start", *self.localize(self.group.start).split(), *words]
        with open(self.all / "log", "wb") as log:
            process = subprocess.Popen(
                words,
                cwd=self.work,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            hung = self._watch(process)
        self.log = (self.all / "log").read_text(errors="replace")
        self._collect(hung)

    def _write(self):
        (self.all / "scenario.sh").write_text(SCENARIO)
        (self.all / "group.sh").write_text(GROUP)
        for count, (name, lines) in enumerate(self.group.scenarios().items()):
            directory = self.work / name.replace("-", "_")
            directory.mkdir()
            out = self.all / f"{count:03}"
            out.mkdir()
            (out / "directory").write_text(str(directory))
            (out / "commands").write_text(
                "".join(f"{line.number}\0{self.localize(line.cmd)}\0" for line in lines),
                encoding="utf-8",
            )

    def _watch(self, process):
        """Wait for the end; kill what a command that takes too long has started.  Returns the numbers of those."""
        hung, current, since = set(), None, time.monotonic()
        while True:
            try:
                process.wait(0.2)
                return hung
            except subprocess.TimeoutExpired:
                pass
            outs = [path.parent for path in self.all.glob("[0-9]*/now")]
            now = None
            if outs:
                latest = max(outs)
                # what runs between two scenarios has no number
                between = (latest / "between").exists()
                now = (latest, "between" if between else (latest / "now").read_text().strip())
            if now != current:
                current, since = now, time.monotonic()
            elif time.monotonic() - since > self.timeout:
                if current is None or current[1] == "between":
                    os.killpg(process.pid, signal.SIGKILL)
                    continue
                hung.add(int(current[1] or 0))
                for pid in descendants(int((current[0] / "pid").read_text())):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                since = time.monotonic()

    def _collect(self, hung):
        for count, lines in enumerate(self.group.scenarios().values()):
            out = self.all / f"{count:03}"
            # recorded id -> ours, as far as the scenario has come
            ids = {}
            for line in lines:
                with contextlib.suppress(OSError, ValueError):
                    texts = [
                        (out / f"{line.number}.{kind}").read_bytes().decode("utf-8", "replace")
                        for kind in ("stdout", "stderr")
                    ]
                    line.got = (int((out / f"{line.number}.rc").read_text()), *texts)
                line.outcome = "hangs" if line.number in hung else self._compare(line, ids)

    def _compare(self, line, ids):
        if line.got is None:
            return "not run"
        rc, out, _ = line.got
        recorded, ours = line.stdout, self.scrub(out)
        if re.search(UNORDERED, line.cmd):
            recorded, ours = in_order(recorded), in_order(ours)
        parts = PARTS.get(line.scenario, ())
        wanted, wanted_ids = normalize(without(recorded, parts))
        given, given_ids = normalize(without(ours, parts))
        alike = wanted == given and same_jobs(wanted_ids, given_ids, ids)
        if alike and parts and rc == line.rc:
            line.reason = "; ".join(text for _, text in parts)
            return "set aside"
        if alike and (rc == line.rc or line.setup):
            return "equal"
        if line.reason or line.setup:
            return "set aside"
        if alike:
            return "rc"
        return "stdout" if rc == line.rc else "rc+stdout"


def normalize(text):
    """Return a text without ids and what differs from run to run, and the ids in it."""
    for pattern, replacement in SCRUB:
        text = pattern.sub(replacement, text)
    ids = ID.findall(text)
    text = ID.sub("ID", text)
    # columns are as wide as what is in them
    text = re.sub(r"[ \t]*\b(ID|TIME)\b[ \t]*", r" \1 ", text)
    return text, ids


def in_order(text):
    """Lines that come in no order, sorted."""
    return "".join(sorted(text.splitlines(keepends=True)))


def without(text, parts):
    """Leave out the lines that one of the patterns of ``parts`` (pattern, why) is found in."""
    return "".join(
        line
        for line in text.splitlines(keepends=True)
        if not any(re.search(pattern, line) for pattern, _ in parts)
    )


def same_jobs(wanted, given, ids):
    """Whether two lists of ids name the same jobs; ``ids`` (recorded -> ours) learns the new ones."""
    if len(wanted) != len(given):
        return False
    alike = True
    for theirs, ours in zip(wanted, given):
        alike = ids.setdefault(theirs, ours) == ours and alike
    return alike


def replay(names=None, workers=2, timeout=TIMEOUT, environ=None, data=None):
    """Run groups side by side, each in an instance of its own.

    Args:
        names: names of groups or scenarios; all groups by default.
        workers: how many groups at a time.
        timeout: seconds a command may take.
        environ: as for Replay.
        data: the directory of the recordings, by default that of the recorded data (see shared.py).

    Returns:
        The groups that ran, by name, their lines filled in.
    """
    data = data or shared.require_data() / "golden" / "commands"
    groups = load(data)
    if names:
        groups = {
            name: group
            for name, group in groups.items()
            if name in names or set(names) & set(group.scenarios())
        }
    with tempfile.TemporaryDirectory(prefix="gold") as scratch:

        def run(group):
            directory = Path(scratch, group.name)
            directory.mkdir()
            Replay(group, data, directory, timeout, environ).run()

        # the longest first
        order = sorted(groups.values(), key=lambda group: -len(group.lines))
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            list(pool.map(run, order))
    return groups


def verdict(lines):
    """What became of a scenario: equal, set aside (nothing else differs), or how its worst line differs."""
    outcomes = {line.outcome for line in lines if not line.setup or line.outcome == "hangs"}
    for outcome in ("not run", "hangs", "rc+stdout", "rc", "stdout", "set aside"):
        if outcome in outcomes:
            return outcome
    return "equal"


def table(groups):
    """Return the rows of the table: name of the group, then how many scenarios and lines came out how."""
    columns = ("equal", "set aside", "stdout", "rc", "rc+stdout", "hangs", "not run")
    rows = []
    for group in groups.values():
        scenarios = [verdict(lines) for lines in group.scenarios().values()]
        lines = [line.outcome for line in group.lines if not line.setup]
        rows.append((group.name, scenarios, lines))
    rows.append(("all", sum((row[1] for row in rows), []), sum((row[2] for row in rows), [])))
    text = [f"{'':8}{'scenarios':>10}" + "".join(f"{column:>10}" for column in columns)]
    for kind in (1, 2):
        if kind == 2:
            text.append(text[0].replace("scenarios", " commands"))
        for row in rows:
            text.append(
                f"{row[0]:8}{len(row[kind]):>10}"
                + "".join(f"{row[kind].count(column) or '':>10}" for column in columns)
            )
        if kind == 1:
            text.append("")
    return text


def show(line):
    """What a line was to give and what it gave."""
    text = [f"--- {line.scenario} [{line.number}] {line.outcome}: {line.cmd}"]
    if line.reason:
        text.append(f"    set aside: {line.reason}")
    rc, out, err = line.got or (None, "", "")
    for name, wanted, given in (
        ("rc", line.rc, rc),
        ("out", line.stdout, out),
        ("err", line.stderr, err),
    ):
        if wanted == given:
            text.append(f"  {name} = {wanted!r}")
        else:
            text.append(f"  {name} - {wanted!r}")
            text.append(f"  {name} + {given!r}")
    return "\n".join(text)


def main(argv=None):
    """Print what was asked for; the exit status is 0 when every scenario is equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="show what differs")
    parser.add_argument("-a", "--all", action="store_true", help="with -v: what is set aside too")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="groups at a time (%(default)s)")
    parser.add_argument("-t", "--timeout", type=float, default=TIMEOUT, help="seconds a command")
    parser.add_argument("-d", "--data", type=Path, help="directory of the recordings")
    parser.add_argument("names", nargs="*", metavar="GROUP|SCENARIO")
    args = parser.parse_args(argv)
    if args.data is None and shared.data_dir() is None:
        parser.exit(1, f"{shared.MISSING}\n")
    groups = replay(args.names, args.jobs, args.timeout, data=args.data)
    if not groups:
        parser.error(f"no such group or scenario: {' '.join(args.names)}")
    bad = {"rc", "stdout", "rc+stdout", "hangs", "not run"} | ({"set aside"} if args.all else set())
    for group in groups.values():
        for scenario, lines in group.scenarios().items():
            if args.names and group.name not in args.names and scenario not in args.names:
                continue
            if args.verbose:
                for line in lines:
                    if line.outcome in bad:
                        print(show(line))
            elif verdict(lines) != "equal":
                print(f"{scenario}: {verdict(lines)}")
    print("\n".join(table(groups)))
    return int(
        any(verdict(lines) in bad for g in groups.values() for lines in g.scenarios().values())
    )


if __name__ == "__main__":
    sys.exit(main())
