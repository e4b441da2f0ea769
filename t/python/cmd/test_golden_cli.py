# SPDX-License-Identifier: LGPL-3.0-or-later
"""Command lines recorded in a real instance give the same output and exit codes in the embedded one, apart from the wording of errors.

The replays take minutes: they run with FLUX_TEST_LONG=1, as before a release.
"""

import concurrent.futures
import re

import pytest
import shared
from golden_replay import personality, read, replay_commands, scrub

START = ["flux", "start"]
#: file -> words of the flux start around it, if any
FILES = {
    "cli-jobs": [*START, "-s4", *personality("job")],
    "cli-misc": [*START, "-s4", *personality("job")],
    "cli-module": [*START, "-s2", "-Sbroker.module-nopanic=1", *personality("job")],
    "cli-start": (),
}

#: Commands whose lines come in no order.
UNORDERED = ("flux module list", "flux run -N2 -n4 -l", "flux bulksubmit --wait --watch")

NO_ZERO = "a job of no slots is denied, as recorded of the pools (alloc-ranges, rv1pool-cases); sched-simple took it"

NO_SHELL_SERVICE = "the embedded instance has no job shell, and so no service of one"

LEFT_OUT = "a command that schedulers and their tests do not need (doc/embedded)"
#: Commands, subcommands and options that do not exist here, and lines that depend on them.
GONE = re.compile(
    r"flux (env|exec|lsattr|modprobe|ping|proxy)\b|flux R (?!encode)"
    r"|flux job (kill|memo|stats|timeleft|list(?!-ids))|flux job (wait-event )?\$F|wait-event \$F"
    r"|flux resource reload"
    r"|--(parse|clear|json|name|quiet|time-format|dry-run|severity)|stats -R|dmesg -H"
    r"|broker.quorum|tbon.topo|jobtap list -a"
)

#: Command lines that the embedded instance answers differently, and why; " #N" is the Nth of its kind.
KNOWN = {
    "cli-jobs": {
        "flux job id --to=words 1234567890": "the words encoding needs a table that no RFC has",
        "flux jobs -a -n": NO_ZERO,
        "flux jobs -f failed": NO_ZERO,
        "flux jobs --stats-only": NO_ZERO,
        "flux job wait-event -p exec $J shell.init | sed 's/^[0-9.]*/TS/'": NO_SHELL_SERVICE,
        "flux job wait-event -p guest.exec.eventlog $J shell.init | sed 's/^[0-9.]*/TS/'": NO_SHELL_SERVICE,
        "flux job eventlog -p exec $J": NO_SHELL_SERVICE,
    },
    "cli-misc": {
        "flux resource list --help | head -20": "the same options, in another order",
        "flux resource list #2": LEFT_OUT + " (resource drain -u)",
        "flux uptime | sed 's/[0-9:]\\{8\\}/TIME/;s/[0-9.]*[a-z]*m*s/T/'": LEFT_OUT,
        "flux logger hello world": LEFT_OUT,
        "flux dmesg | tail -1 | cut -d' ' -f2-": LEFT_OUT + " (logger)",
        "flux dmesg | tail -1 | sed 's/^[^ ]*/TS/'": LEFT_OUT + " (logger)",
        "flux logger --severity=err --appname=foo some error": LEFT_OUT,
        "flux dmesg | tail -1 | cut -d' ' -f2- #2": LEFT_OUT + " (logger)",
        "flux dmesg --new --follow & sleep 0.3; flux logger followed; sleep 0.3; kill $!": LEFT_OUT,
        "flux kvs ls": LEFT_OUT,
        "flux kvs ls a": LEFT_OUT,
        "flux kvs dir a": LEFT_OUT,
        "flux kvs eventlog get resource.eventlog | cut -d' ' -f2-": LEFT_OUT,
        "flux event pub foo '{\"a\":1}'": LEFT_OUT,
        "flux resource reload R.bad": "says what is missing in an R without version",
        "flux": "lists the commands there are",
    },
    "cli-module": {
        "flux module load sched-fifo pool-class=json:loads": "a function is no pool class: refused at load",
        "flux module reload sched-fifo pool-class=TreePool": "R has no topology: the load fails, where "
        "the recorded one answered and the module died later",
        "flux dmesg | grep 'ready:' | tail -1 | cut -d' ' -f2-": "recorded before the module's own line was in the log",
        "flux module stats sched-fifo | jq -c .": "more keys",
        "flux module stats newsched | jq -c keys": "more keys",
        "flux module stats -p x.y good": LEFT_OUT + " (--parse)",
        "flux dmesg | grep -E \"bad_|ret0\" | cut -d' ' -f2-": "a warning more, of a module that ends without a reactor",
        "flux module list -l | grep good": "seconds without a message",
    },
    "cli-start": {
        "flux start env | grep ^FLUX | sort": "a module's directory each on FLUX_MODULE_PATH"
    },
}


def load(name):
    """The recorded lines of a file, in order; none without the data."""
    return shared.optional_jsonl(f"golden/{name}.jsonl")


def prepare(name, directory):
    """Files that the recorded commands find where they run."""
    home = directory / "user"
    home.mkdir()
    if name == "cli-module":
        for file, text in shared.load_json("golden/cli-module-files.json").items():
            (home / file).write_text(text)
        (home / "c4.txt").write_text("")


def cases():
    """(file, number, known-difference key, entry) of every recorded command line."""
    found = []
    for name in (*FILES, "cli-personalities"):
        times = {}
        for number, entry in enumerate(load(name)):
            command = entry.get("cmd")
            if command is None:
                continue
            times[command] = times.get(command, 0) + 1
            key = command if times[command] == 1 else f"{command} #{times[command]}"
            found.append(pytest.param(name, number, key, entry, id=f"{name}-{number}"))
    return found


@pytest.fixture(scope="module")
def replays(tmp_path_factory):
    """file -> future of its results; two instances run at a time."""
    shared.require_long()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        futures = {}
        for name, start in FILES.items():
            directory = tmp_path_factory.mktemp(name)
            prepare(name, directory)
            futures[name] = pool.submit(replay, load(name), directory, start)
        directory = tmp_path_factory.mktemp("personalities")
        futures["cli-personalities"] = pool.submit(replay_personalities, directory)
        yield futures


def replay(entries, directory, start):
    results, log = replay_commands(entries, directory, start)
    return results, log, directory / "user"


def replay_personalities(directory):
    results, logs = [], ""
    sections = read(shared.data_path("golden/cli-personalities.jsonl"))
    for number, (section, entries) in enumerate(sections.items()):
        name = section.split()[1].rstrip(",")
        inside = directory / str(number)
        inside.mkdir()
        some, log = replay_commands(entries, inside, [*START, "-s2", *personality(name)])
        results += some
        logs += log
    return results, logs, None


def ordered(command, text):
    if command.startswith(UNORDERED):
        return "\n".join(sorted(text.splitlines()))
    return text


@pytest.mark.parametrize("name, number, key, entry", shared.recorded_cases(cases(), values=4))
def test_command(replays, name, number, key, entry):
    results, log, home = replays[name].result()
    reason = LEFT_OUT if GONE.search(key) else KNOWN.get(name, {}).get(key)
    result = results[number]
    assert result is not None, "did not run; the instance said:\n" + log[-2000:]
    if reason:
        pytest.skip("known difference: " + reason)
    command = entry["cmd"]
    rc, out, err = result
    assert bool(err) == bool(entry["stderr"]), command
    assert ordered(command, scrub(out, home)) == ordered(command, scrub(entry["stdout"])), command
    assert rc == entry["rc"], command


def test_known_differences_are_recorded_lines():
    keys = {name: set() for name in KNOWN}
    for case in cases():
        name, _, key, entry = case.values
        keys.setdefault(name, set()).add(key)
    if not keys["cli-jobs"]:
        pytest.skip(shared.MISSING)
    for name, known in KNOWN.items():
        assert set(known) <= keys[name], "no such line in " + name
