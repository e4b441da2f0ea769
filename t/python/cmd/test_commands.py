# SPDX-License-Identifier: LGPL-3.0-or-later
"""Command lines beyond the recorded ones, in one embedded instance of four ranks of two cores."""

import pytest
from golden_replay import environment, personality, replay_commands, scrub

#: (command, exit code, stdout, stderr) after scrubbing; they run in this order in one shell.
LINES = [
    # options may be abbreviated
    ("flux kvs put a.d=2 l=x; flux kvs get l a.d", 0, "x\n2\n", ""),
    # properties, membership, exclusion: commands of our own
    (
        "flux resource property add foo 1-2; flux resource list -s free -o '{properties:<5} {ranks}'",
        0,
        "PROPERTIES RANKS\n      0,3\nfoo   1-2\n",
        "",
    ),
    (
        "flux resource property remove foo 2; flux resource list -s free -no '{properties} {ranks}'",
        0,
        " 0,2-3\nfoo 1\n",
        "",
    ),
    ("flux resource property add 'a&b' 1", 1, "", None),
    ("flux resource drain 1 bad fan; flux resource drain 2-3 x", 0, "", ""),
    ("flux resource drain -no '{ranks} {reason}'", 0, "1 bad fan\n2-3 x\n", ""),
    ("flux resource undrain 1-3; flux resource list -s down -no '{rlist}'", 0, "", ""),
    (
        "flux resource topology -r 3 --ascii",
        0,
        "vm (rank 3): 2 cores; all free\n  cores 0-1    ..\n",
        "",
    ),
    (
        "flux resource topology nosuch",
        1,
        "",
        "flux-resource: ERROR: nosuch: No such file or directory\n",
    ),
    ("flux resource topology -r 9", 1, "", "flux-resource: ERROR: ranks 9: R has 0-3\n"),
    (
        "echo '{' | flux resource topology - 2>&1 | grep -o 'ERROR: -: not R'",
        0,
        "ERROR: -: not R\n",
        "",
    ),
    ("flux resource nosuch", 2, "", None),
    # submission
    (
        "flux submit --quiet --cc=1-3 --watch sh -c 'echo $FLUX_JOB_CC {cc}' | sort",
        0,
        "1 1\n2 2\n3 3\n",
        "",
    ),
    ("flux submit --bcc=1-2 --quiet --wait sh -c 'exit $FLUX_JOB_CC'", 0, "", ""),
    ("flux submit --quiet --wait sh -c 'exit 3'", 3, "", ""),
    ("flux submit --quiet --watch sh -c 'echo out; echo err >&2'", 0, "out\n", "err\n"),
    ("flux submit --quiet --wait-event=shell.init sleep 0", 0, "", ""),
    ("flux submit --quiet --wait-event=nosuch true", 0, "", ""),
    ("flux submit --quiet --output=f.{cc} --cc=1-2 --wait echo {cc}; cat f.1 f.2", 0, "1\n2\n", ""),
    ("flux submit --input=f.1 --output=o --wait --quiet cat; cat o", 0, "1\n", ""),
    ("flux submit --resources-shape=slot=0/core true", 1, "", None),
    (
        "flux submit -N1 --tasks-per-node=2 --tasks-per-core=1 true",
        1,
        "",
        "flux-submit: ERROR: Do not specify both the number of tasks per node and per core\n",
    ),
    (
        "flux submit --env='X=$NOSUCH' true",
        1,
        "",
        "flux-submit: ERROR: --env: Variable 'NOSUCH' not found in X=$NOSUCH\n",
    ),
    ("flux run -N2 -n4 -l hostname | sort", 0, "0: vm\n1: vm\n2: vm\n3: vm\n", ""),
    (
        "flux run -N2 --tasks-per-node=2 hostname 2>&1 | grep -o 'has no shell options.*'",
        0,
        "has no shell options taskmap and per-resource\n",
        "",
    ),
    ("flux run -N4 -l flux getattr rank | sort", 0, "0: 0\n1: 1\n2: 2\n3: 3\n", ""),
    ("flux run -o nosuchoption=1 true", 0, "", ""),
    # jobs and what is done to them
    (
        "J=$(flux submit -n2 -c2 sleep 100); flux job wait-event -q $J start; flux jobs -no '{ntasks} {ncores} {duration!F:>4h} {ranks}' $J",
        0,
        "2 4    - [0-1]\n",
        "",
    ),
    ("flux cancel $J; flux job status -vv $J", 143, "", None),
    ("flux jobs -f canceled -no '{inactive_reason} {returncode}' -c 1", 0, "Canceled 143\n", ""),
    (
        "J=$(flux submit --flags=waitable false); flux job wait",
        1,
        " ƒID\n",
        "flux-job: ERROR: task(s) exited with exit code 1\n",
    ),
    ("flux job wait", 2, "", "flux-job: ERROR: there are no more waitable jobs\n"),
    ("flux run --setattr=exec.test.run_duration=0.1s true", 0, "", ""),
    ("flux run -vv true 2>&1 | grep -c 's: [a-z]* '", 0, "10\n", ""),
    (
        "flux submit --quiet --urgency=hold true; flux cancel --states=pending -m bye",
        0,
        "",
        "flux-cancel: Canceled 1 job (0 errors)\n",
    ),
    (
        "flux jobs -a -c 1 -no '{result} {exception.type} {exception.note}'",
        0,
        "CANCELED cancel bye\n",
        "",
    ),
    ("flux jobs --filter=nosuch", 1, "", "flux-jobs: ERROR: Invalid filter specified: nosuch\n"),
    ("flux job purge --num-limit=3 --force >/dev/null; flux jobs -an | wc -l", 0, "3\n", ""),
    (
        "flux job wait-event -vt5 --count=1 $(flux submit true) alloc | cut -d' ' -f2",
        0,
        "submit\nvalidate\ndepend\npriority\nalloc\n",
        "",
    ),
    (
        "flux job eventlog -f json $(flux job last) | jq -r .name | head -2",
        0,
        "submit\nvalidate\n",
        "",
    ),
    ("flux job eventlog -f xml $(flux job last)", 1, "", None),
    # the rest
    (
        "LC_ALL=C flux job id --to=f58 1234567890; FLUX_F58_FORCE_ASCII=1 flux job id --to=f58 1234567890",
        0,
        "f2t6V2H\nf2t6V2H\n",
        "",
    ),
    ("flux jobs | true; flux resource list | head -1 | wc -l", 0, "1\n", ""),
    (
        "flux jobtap list | wc -l; flux jobtap list -a | grep '^.priority-default$'",
        0,
        "0\n.priority-default\n",
        "",
    ),
    # instances in jobs
    (
        "flux alloc -N2 --requires=rank:2-3 sh -c 'flux resource info; flux getattr rank'",
        0,
        "2 Nodes, 4 Cores, 0 GPUs\n0\n",
        "",
    ),
    ("flux alloc -n1", 1, "", None),
    (
        "printf '#!/bin/sh\\n# flux: -N2 --job-name=foo\\necho $1; flux getattr size\\n' >b.sh; flux batch --output=b.out --quiet b.sh arg",
        0,
        "",
        "",
    ),
    (
        "flux job wait-event -q $(flux job last) clean; cat b.out; flux jobs -no '{name} {nnodes}' $(flux job last)",
        0,
        "arg\n2\nfoo 2\n",
        "",
    ),
    (
        "J=$(flux batch -n1 --output=none --wrap sleep 100); flux job wait-event -q -t 10 $J memo; export U=$(flux job eventlog -f json $J | jq -r 'select(.name==\"memo\").context.uri' | sed 's,ssh://[^/]*,local://,'); FLUX_URI=$U flux getattr instance-level",
        0,
        "1\n",
        "",
    ),
    ("flux cancel $J; flux job status $J", 129, "", ""),
    (
        "J=$(flux submit true) K=$(flux submit -n100 true) L=$(flux submit sh -c 'exit 3'); flux job status -v $J $K; flux job status -v $L 2>&1 | sed 's/ƒ[^:]*/ID/'",
        0,
        "flux-job: ID: exited with exit code 3\n",
        "",
    ),
    (
        "echo true >n.sh; flux batch -n1 n.sh",
        1,
        "",
        "flux-batch: ERROR: n.sh does not appear to start with '#!'\n",
    ),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    directory = tmp_path_factory.mktemp("commands")
    entries = [{"cmd": line[0]} for line in LINES]
    found, log = replay_commands(
        entries, directory, ["flux", "start", "-s4", *personality("job")], environ=environment()
    )
    return found, log, directory / "user"


@pytest.mark.parametrize(
    "number", range(len(LINES)), ids=lambda number: f"{number}-{LINES[number][0][:40]}"
)
def test_line(results, number):
    found, log, home = results
    command, code, out, err = LINES[number]
    assert found[number] is not None, "did not run; the instance said:\n" + log[-2000:]
    rc, stdout, stderr = found[number]
    if err is not None:
        assert scrub(stderr, home) == err, command
    else:
        assert stderr.strip(), command
        assert "Traceback" not in stderr
    assert scrub(stdout, home) == out, command
    assert rc == code, command
