# SPDX-License-Identifier: LGPL-3.0-or-later
"""Command lines beyond the recorded ones, in one embedded instance of four ranks of two cores."""

import re

import pytest
from golden_replay import personality, replay_commands, scrub

#: The output on a terminal, scrubbed; "1! text": exit code 1, and text on standard error ("...": any). All run in one shell.
TRANSCRIPT = r"""
# nothing was submitted yet
$ flux job last 2
1! flux-job: ERROR: job history is empty
$ flux job last
1! flux-job: ERROR: job history is empty
$ flux jobs -c -1
1! flux-jobs: ERROR: invalid payload: max_entries < 0 not allowed
$ flux housekeeping kill -j f1
# options may be abbreviated
$ flux kvs put a.d=2 l=x; flux kvs get l a.d
x
2
# a key that is missing, and a directory, are not removed by mistake
$ flux kvs unlink l nosuch
1! flux-kvs: ERROR: cannot unlink 'nosuch': No such file or directory
$ flux kvs unlink a
1! flux-kvs: ERROR: cannot unlink 'a': it is a directory: -R removes it with its entries
$ flux kvs get l a.d; flux kvs unlink -f nosuch l; flux kvs unlink a.d; flux kvs unlink -R a; flux kvs put b.c.d=1; flux kvs unlink -R b
x
2
$ flux kvs get b.c.d
1! flux-kvs: ERROR: b.c.d: No such file or directory
# properties, membership, exclusion: commands of our own
$ flux resource property add foo 1-2; flux resource list -s free -o '{properties:<5} {ranks}'
PROPERTIES RANKS
      0,3
foo   1-2
$ flux resource property remove foo 2; flux resource list -s free -no '{properties} {ranks}'
 0,2-3
foo 1
$ flux resource property add 'a&b' 1
1! ...
$ flux resource drain 1 bad fan; flux resource drain 2-3 x
$ flux resource drain -no '{ranks} {reason}'
1 bad fan
2-3 x
$ flux resource drain 0 x; flux resource drain -no '{nnodes} {ranks} {reason}'; flux resource undrain 0
3 0,2-3 x
1 1 bad fan
$ flux resource drain 1 other 2>&1
1!
flux-resource: ERROR: [Errno 17] rank 1 already drained
flux-resource: INFO: Use --force to overwrite existing drain reason
$ flux resource drain -fu 1 x
1! flux-resource: ERROR: Only one of --force and --update may be specified
$ flux submit --quiet --requires=rank:0 -n1 sleep 100; flux resource drain -u 0 busy; flux resource status -s all -no '{state} {ranks} {status} {reason} {up.ascii}'
avail  online  y
exclude  online  y
allocated 0 online  y
torpid  online  y
housekeeping  online  y
draining 0 online busy y
drained 1 online bad fan y
drained 2-3 online x y
$ flux cancel --all; flux resource undrain 0; flux resource status; flux resource status -s exclude,drain -i 0-1 -no '{statex} {nnodes}'
! flux-cancel: Canceled 1 job (0 errors)
       STATEUP NNODES NODELIST
       avail ✔      1 vm
     drained ✔      3 vm,vm,vm
exclude 0
draining 0
drained 1
$ flux resource status -s offline -no '{state} {status} {nnodes}'
avail* offline 0
exclude* offline 0
torpid* offline 0
housekeeping* offline 0
$ flux resource status -s nosuch 2>&1 | cut -d, -f1-4
flux-resource: ERROR: Invalid resource state nosuch specified
flux-resource: INFO: valid states: avail,exclude,allocated,torpid
$ flux resource drain 9
1! flux-resource: ERROR: [Errno 22] idset is out of range
$ flux resource info -i nosuch
$ flux resource drain -u 0-1 upd; flux resource drain -f 1 other; flux resource drain -i 0-2 -no '{ranks} {reason}'
0 upd
1 other
2 x
$ flux resource drain -no long | cut -c 23- | sed 's/ .* vm.*/ vm/'
0 vm
1 vm
2-3 vm
$ flux resource undrain 0; flux resource undrain 0-1 fixed
1! flux-resource: ERROR: rank 0 not drained
$ flux resource undrain -f 0-1 fixed; flux resource undrain -u 0-3; flux resource list -s down -no '{rlist}'
$ flux resource list --skip-empty -s down,free -no '{state} {rlist}'
free rank[0-3]/core[0-1]
$ flux resource nosuch
2! ...
# submission
$ flux submit --quiet --cc=1-3 --watch sh -c 'echo $FLUX_JOB_CC {cc}' | sort
1 1
2 2
3 3
$ flux submit --bcc=1-2 --quiet --wait sh -c 'exit $FLUX_JOB_CC'
$ flux submit --quiet --wait sh -c 'exit 3'
3!
$ flux submit --quiet --watch sh -c 'echo out; echo err >&2'
out
! err
$ flux submit --quiet --wait-event=shell.init sleep 0
$ flux submit --quiet --wait-event=nosuch true
$ flux submit --quiet --output=f.{cc} --cc=1-2 --wait echo {cc}; cat f.1 f.2
1
2
$ flux run -n2 --output='t.{{task.id}}' -l sh -c 'printf "a\nb"' 2>&1 | sort; cat t.0; echo; cat t.1; echo
[0-1]: stderr redirected to t.{{task.id}}
[0-1]: stdout redirected to t.{{task.id}}
0: a
0: b
1: a
1: b
$ flux run -N2 -n4 -l echo {{size}} {{ntasks}} {{nnodes}} {{taskid}} {{task.index}} {{node.id}} {{node.name}} {{nosuch}} | sort
0: 4 4 2 0 0 0 vm {{nosuch}}
1: 4 4 2 1 1 0 vm {{nosuch}}
2: 4 4 2 2 0 1 vm {{nosuch}}
3: 4 4 2 3 1 1 vm {{nosuch}}
$ flux run -N2 -n4 --output=t.{{node.id}}.{{task.localid}}.{{size}} sh -c 'echo $FLUX_TASK_RANK' 2>/dev/null; cat t.0.0.4 t.0.1.4 t.1.0.4 t.1.1.4
0
1
2
3
$ flux job info $(flux job last) guest.output | jq -c 'select(.name=="header").context.count'; flux job info $(flux job last) eventlog | tail -1 | wc -c
{"stdout":4,"stderr":4}
1
$ (unset FLUX_URI; flux getattr rank) 2>&1 | grep -o 'Unable to connect'; (unset FLUX_URI; flux kvs get a) 2>&1 | grep -o 'Unable to connect'
Unable to connect
Unable to connect
$ flux submit --input=f.1 --output=o --wait --quiet cat; cat o
1
$ flux submit --resources-shape=slot=0/core true
1! ...
$ flux submit -N1 --tasks-per-node=2 --tasks-per-core=1 true
1! flux-submit: ERROR: Do not specify both the number of tasks per node and per core
$ J=$(flux submit --urgency=hold -t 10m true); flux update -n $J duration=+1m; flux update -v $J duration=5m; flux cancel $J
{"attributes.system.duration": 660.0}
! flux-update: INFO: updated attributes.system.duration to 300.0
$ flux update f1 duration=+1m
1! flux-update: ERROR: unknown job id
$ J=$(flux submit --urgency=hold -t 10m true); flux job urgency -v $J 0; flux update $J duration=-20m 2>&1 | grep -o '(.*'; flux cancel $J
! old urgency: job held
(10m) cannot be reduced by 20m
$ flux submit --env='X=$NOSUCH' true
1! flux-submit: ERROR: --env: Variable 'NOSUCH' not found in X=$NOSUCH
$ flux run -N2 -n4 -l hostname | sort
0: vm
1: vm
2: vm
3: vm
$ flux run -N2 --tasks-per-node=2 --taskmap=cyclic -l flux getattr rank | sort
0: 0
1: 1
2: 0
3: 1
# how a job ended, and the exceptions of it, beside its output
$ flux run -l sh -c 'echo out; exit 3'
3! flux-job: task(s) exited with exit code 3
0: out
$ flux run --input=nosuch.txt -l cat 2>&1 | cut -d' ' -f2- | grep -v '^job.exc'
flux-shell[0]: FATAL: error opening input file 'nosuch.txt': No such file or directory
job shell Terminated
$ flux run -n 1000 -l true 2>&1 | cut -d' ' -f2,4,5
job.exception type=alloc severity=0
$ flux job status 1234
1! flux-job: ERROR: 1234: No such job
$ flux job attach 1234
1! flux-job: ERROR: Failed to attach to 1234: No such job
# signals to flux run go to the job; Ctrl-C twice cancels it, and with Ctrl-Z after it flux run ends alone
$ begin() { rm -f out; flux run "$@" >out 2>err & p=$!; until grep -qs ready out; do sleep 0.02; done; }
$ begin sh -c 'echo ready; exec sleep inf'; kill -USR1 $p; wait $p; echo $?; cat err
138
flux-job: task(s) User defined signal 1
$ begin sh -c 'trap "exit 0" TERM; echo ready; while :; do sleep 0.02; done'; kill -INT $p; until test -s err; do sleep 0.02; done; kill -INT $p; wait $p; echo $?; grep ^flux-job: err; flux job eventlog $(flux job last) | grep -o 'finish.*'
1
flux-job: one more ctrl-C within 2s to cancel or ctrl-Z to detach
flux-job: task(s) exited with exit code 1
finish status=256
$ begin sh -c 'echo ready; exec sleep inf'; kill -INT $p; until test -s err; do sleep 0.02; done; kill -TSTP $p; wait $p; echo $?; tail -1 err; flux jobs -no '{state}'; flux cancel --all -q 2>err
1
flux-job: detaching...
RUN
$ flux run -N4 -l flux getattr rank | sort
0: 0
1: 1
2: 2
3: 3
$ flux run printf '\377x\n' | od -An -tx1
 ff 78 0a
$ flux run --cwd=/nosuch pwd 2>&1 | sed 's/^[0-9.]*s/T/'
T: flux-shell[0]: ERROR: host vm: Could not change dir to /nosuch: No such file or directory. Going to /tmp instead
/tmp
$ flux run -o nosuchoption=1 true
$ flux bulksubmit --quiet --wait --watch echo {} ::: a b | sort
a
b
$ printf '[licenses]\na = 3\n' | flux config load; flux config get | sed 's/3/4/' | flux config load; flux config get licenses; flux config load </dev/null
{"a":4}
# jobs and requests on them
$ J=$(flux submit -n2 -c2 sleep 100); flux job wait-event -q $J start; flux jobs -no '{ntasks} {ncores} {duration!F:>4h} {ranks}' $J
2 4    - [0-1]
$ flux cancel $J; flux job status -vv $J
143! ...
$ flux jobs -f canceled -no '{inactive_reason} {returncode}' -c 1
Canceled 143
# a job that depends on two, of which one decides about the other; those that end for it end after it
$ A=$(flux submit --urgency=hold true) B=$(flux submit --dependency=afternotok:$A true) C=$(flux submit --dependency=afterok:$B --dependency=afterany:$A true); flux job urgency $A default; flux job wait-event -q $C clean; flux jobs -an -c 3 -o '{id}' >a; printf '%s\n' $C $B $A | cmp a; flux job eventlog $C | grep -o 'dependency-remove\|job never started'
dependency-remove
job never started
# one note for several jobs, and events as they are in the log
$ J=$(flux submit --urgency=hold true) K=$(flux submit --urgency=hold true); flux job raise -s 3 $J $K two words; flux job raise -m bye $J 1234 $K; flux job raise -m bye $J x
1! ...
$ for id in $J $K; do flux job attach -E $id 2>&1 | cut -d' ' -f2- | grep -v 'depend\|priority\|validate'; done
job.submit {"userid":0,"urgency":0,"flags":0,"version":1}
job.exception ƒID type=cancel severity=3 two words
job.exception ƒID type=cancel severity=0 bye
job.clean
job.submit {"userid":0,"urgency":0,"flags":0,"version":1}
job.exception ƒID type=cancel severity=3 two words
job.exception ƒID type=cancel severity=0 bye
job.clean
$ J=$(flux submit --flags=waitable false); flux job wait
 ƒID
1! flux-job: ERROR: task(s) exited with exit code 1
$ flux job wait
2! flux-job: ERROR: there are no more waitable jobs
$ flux submit --quiet --cc=0-1 --flags=waitable sh -c 'exit $FLUX_JOB_CC'; flux job wait -a -v 2>&1 | cut -d' ' -f2- | sort
job completed successfully
task(s) exited with exit code 1
$ flux submit --quiet --flags=waitable false; flux job wait --all >/dev/null 2>&1
1!
$ flux job wait --all
$ flux run --setattr=exec.test.run_duration=0.1s true
! flux-job: No job output found
$ flux run -vv true 2>&1 | grep -o 's: job.[a-z]*' | tr -d '\n'; echo
s: job.submits: job.validates: job.depends: job.prioritys: job.allocs: job.starts: job.finishs: job.releases: job.frees: job.clean
$ flux submit --quiet --urgency=hold true; (flux cancel -n -u all; flux cancel --all; flux cancel -S run -qu root) 2>&1
flux-cancel: Would cancel 1 job
flux-cancel: Canceled 1 job (0 errors)
$ flux submit --quiet --cc=1-2 --urgency=hold true; (flux cancel -n $(flux jobs -no '{id}'); flux cancel -n -u all) 2>&1
flux-cancel: Would cancel 2 jobs
flux-cancel: Would cancel 2 jobs
$ flux cancel bogus
2! ...
$ flux cancel --user=no-such-user
1! flux-cancel: ERROR: Invalid user no-such-user specified
$ flux cancel --states=pending -m bye
! flux-cancel: Canceled 2 jobs (0 errors)
$ flux jobs -a -c 1 -no '{result} {exception.type} {exception.note}'
CANCELED cancel bye
$ flux jobs -a -c 1 --json | grep -o '"result": "[A-Z]*"'; flux jobs --json $(flux job last) | cut -c 1-8
"result": "CANCELED"
{"t_depe
$ flux jobs --stats | sed 's/[1-9][0-9]*/N/g' | head -2 | cut -c 1-39; flux jobs --stats >/dev/null
0 running, N completed, N failed, 0 pen
       JOBID USER     NAME       ST NTA
$ flux jobs -c 1 -an >/dev/null; flux jobs -c 1 -a 2>&1 >/dev/null
warning: output truncated at 1 jobs.
Use --count to increase returned results or use filters to alter results.
$ flux jobs -u root -an | wc -l >a; flux jobs -an | wc -l | cmp a; flux jobs -a -u 12345 -n; flux jobs -a --name=false -c 1 -no '{name}'
false
$ flux jobs -a -i 0 -c 1 -no '{ranks}'; flux jobs -a -i $(hostname) -n --sort=-id -o '{id}' | tail -1 >a; flux jobs -ani 0-3 --sort=id -o '{id}' | head -1 | cmp a
0
$ flux jobs --since=-1h -n | wc -l >a; flux jobs -an | wc -l | cmp a; flux jobs -f failed --since=+1h
1! flux-jobs: ERROR: --since=+1h appears to be in the future
$ for format in long deps endreason; do flux jobs -o $format | head -1; done
       JOBID USER     NAME          STATUS NTASKS NNODES     T_SUBMIT  T_REMAINING     TIME INFO
       JOBID NAME       URG PRI          STATE    DEPENDENCIES
       JOBID USER     NAME       ST   T_INACTIVE INACTIVE-REASON
$ flux jobs --sort=nosuch
1! flux-jobs: ERROR: Invalid sort key: nosuch
$ flux jobs -i 'x['
1! ...
# ignored options, and formats that do not suit a column
$ flux jobs -a -f canceled --stats -n $(flux job last) 2>&1 >/dev/null
flux-jobs: WARNING: Filtering options ignored with jobid list
flux-jobs: WARNING: Both -a and --filter specified, ignoring -a
$ (flux jobs -a -o '{state!F}'; flux resource list -o '{state!F}'; flux jobs -ao '{{x}} {name}') >/dev/null
1! ...
$ flux jobs --json --stats
1! flux-jobs: ERROR: --json incompatible with --stats or --stats-only
$ flux jobs --stats-only -q nosuch
1! flux-jobs: ERROR: no stats available for queue nosuch
$ flux jobs -a -c 1 -no '{name} {instance.utilization}.'
true .
# sizes before an allocation: whole nodes have as many cores as R says, tasks may be counted per node or core
$ for shape in '-N2 -x' '-N2 --tasks-per-node=3' '-N2 --tasks-per-core=1' '--cores=3 --tasks-per-core=2' '-n3 -c2'; do J=$(flux submit --urgency=hold $shape true); flux jobs -no '{ntasks} {ncores}.' $J; flux cancel $J; done
2 .
6 .
 .
6 3.
3 6.
$ flux jobs -u no-such-user
1! flux-jobs: ERROR: Invalid user no-such-user specified
$ flux jobs --filter=nosuch
1! flux-jobs: ERROR: Invalid filter specified: nosuch
$ flux job purge --num-limit=3 --force >/dev/null; flux jobs -an | wc -l
3
$ flux job wait-event -vt5 --count=1 $(flux submit true) alloc | cut -d' ' -f2
submit
validate
depend
priority
alloc
$ flux job last 3 >a; flux job last [1:3] >b; flux job last [:3] | cmp a; sed 1d a | cmp b; flux job last [:] | wc -l
4
$ flux job last -1
1! flux-job: ERROR: last: expected N or [FROM:TO], not '-1'
$ flux job eventlog -f json $(flux job last) | jq -r .name | head -2
submit
validate
$ flux job eventlog -p exec $(flux job last) | wc -l; flux job wait-event -qp output $(flux job last) header; flux job eventlog -p output $(flux job last) | cut -d' ' -f2-3 | head -1
8
header version=1
$ flux job eventlog -T offset $(flux job last) | head -1 | cut -c 1-15
T submit
$ flux job eventlog -f xml $(flux job last)
1! ...
# housekeeping
$ printf '[job-manager.housekeeping]\ncommand = ["sh", "-c", "test $(flux getattr rank) = 0 || kill $$"]\n' | flux config load; J=$(flux submit -N2 --wait true); until test -z "$(flux housekeeping list -n)"; do sleep 0.02; done; flux dmesg | tail -2 | cut -d' ' -f2- | sed "s/$J/ID/"
job-manager.err[0]: housekeeping: vm (rank 1) ID: Terminated
job-manager.debug[0]: housekeeping: ID complete
$ printf '[job-manager.housekeeping]\ncommand = ["sleep", "60"]\n' | flux config load; flux job wait-event -q $(flux submit -N2 true) free
$ flux housekeeping list -i 0,3 -o '{nnodes} {ranks} {pending.ranks} {pending.nnodes} {nodelist}'; flux housekeeping list -i 3 -n
NNODES RANKS ACTIVE_RANKS #ACTIVE NODELIST
1 0 0 1 vm
$ flux housekeeping kill
1! flux-housekeeping: ERROR: specify at least one of --targets, --jobid, or --all
$ flux housekeeping kill -t 2-3; flux housekeeping kill --targets=nosuch
1! ...
$ flux housekeeping kill --targets=0; timeout 10 sh -c 'until flux housekeeping list -no {pending.ranks} | grep -x 1; do :; done'
1
$ flux housekeeping kill --all; flux cancel --all -q; flux config load </dev/null; flux jobs -no '{id}'
# the rest
$ LC_ALL=C flux job id --to=f58 1234567890; FLUX_F58_FORCE_ASCII= flux job id --to=f58 1234567890
f2t6V2H
f2t6V2H
$ flux jobs | true; flux resource list | head -1 | wc -l
1
$ (flux queue list; flux queue list -no policy; flux queue list -no nodes) | sed 's/\x1b\[[0-9;]*m//g'
 EN ST TDEFAULT   TLIMIT     NNODES     NCORES      NGPUS
  ✔  ✔      inf      inf        0-4        0-8        0-0
  ✔  ✔      inf      inf      0-inf      0-inf      0-inf
  ✔  ✔      4          4          0           0          4
$ printf '[queues.z]\n[queues.foo]\n' | flux config load; flux resource property add foo 0; flux resource list -s down -no '{queue} {nnodes}'; flux resource list -q z -s free -no '{propertiesx} {nnodes}'
z 0
foo 0
 4
$ flux resource property remove foo 0; flux config load </dev/null
$ printf '[queues.a]\n[policy.limits.job-size]\nmin.nnodes = 1\nmax.ncores = 6\n' | flux config load; flux queue list -o '{queue} {submission} {limits.range.nnodes} {limits.range.effective.ncores} {limits.max.ngpus} {resources.free.ncores}'; flux config load </dev/null
QUEUE SUBMIT NNODES NCORES MAXGPUS CORES:FREE
a enabled 1-inf 0-6 inf 8
$ flux queue stop --nocheckpoint -v -m x
Scheduling is stopped: x
0 alloc requests queued
0 alloc requests pending to scheduler
0 running jobs
$ flux queue start --quiet -v
$ printf '[queues]\na = {}\nb = {}\n' | flux config load; flux queue disable -v -m why b; flux queue start -v --queue=b; flux config load </dev/null
a: Job submission is enabled
b: Job submission is disabled: why
a: Scheduling is stopped
b: Scheduling is started
0 alloc requests queued
0 alloc requests pending to scheduler
0 running jobs
$ flux jobtap list | wc -l; flux jobtap list -a | grep '^.priority-default$'
0
.priority-default
# instances in jobs
$ flux alloc -N2 --requires=rank:2-3 sh -c 'flux resource info; flux getattr rank'
2 Nodes, 4 Cores, 0 GPUs
0
$ flux alloc -n1
1! ...
$ printf '#!/bin/sh\n# flux: -N2 --job-name=foo\necho $1; flux getattr size\n' >b.sh; flux batch --output=b.out --quiet b.sh arg
$ flux job wait-event -q $(flux job last) clean; cat b.out; flux jobs -no '{name} {nnodes}' $(flux job last)
arg
2
foo 2
$ J=$(flux batch -n1 --output=none --wrap sleep 100); flux job wait-event -q -t 10 $J memo; export U=$(flux job eventlog -f json $J | jq -r 'select(.name=="memo").context.uri' | sed 's,ssh://[^/]*,local://,'); FLUX_URI=$U flux getattr instance-level
1
$ flux cancel $J; flux job status $J
129!
$ J=$(flux submit true) K=$(flux submit -n100 true) L=$(flux submit sh -c 'exit 3'); flux job status -v $J $K; flux job status -v $L 2>&1 | sed 's/ƒ[^:]*/ID/'
flux-job: ID: exited with exit code 3
$ echo true >n.sh; flux batch -n1 n.sh
1! flux-batch: ERROR: n.sh does not appear to start with '#!'
"""


def read_transcript(text):
    """[(command, exit code, stdout, stderr or None)]"""
    lines = []
    for line in text.splitlines():
        failed = re.fullmatch(r"(\d*)!(?: (.*))?", line)
        if line.startswith("$ "):
            lines.append([line[2:], 0, "", ""])
        elif failed:
            code, said = failed.groups()
            lines[-1][1] = int(code or 0)
            lines[-1][3] = None if said == "..." else f"{said}\n" if said else ""
        elif line and not line.startswith("# "):
            lines[-1][2] += f"{line}\n"
    return lines


LINES = read_transcript(TRANSCRIPT)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    directory = tmp_path_factory.mktemp("commands")
    entries = [{"cmd": line[0]} for line in LINES]
    start = ["flux", "start", "-s4", *personality("job")]
    found, log = replay_commands(entries, directory, start)
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
