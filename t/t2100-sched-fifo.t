#!/bin/sh

test_description='sched-fifo, as a user sees it

Arguments, order, annotations, cancel, drain, time limits, reload with running jobs, statistics. Four nodes of
two cores.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

shown() {
	flux jobs -no "{annotations.sched.$2}" "$1"
}
wait_shown() {
	test_wait_until "test -n \"\$(flux jobs -no '{annotations.sched.$2}' $1)\""
}
stat() {
	flux module stats sched-fifo | jq -r ".$1"
}

test_expect_success 'all nodes are up' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4"
'
test_expect_success 'sched-simple, which tests load: bit 1 of its debug word denies every request' '
	flux module list | grep "^sched-simple.*feasib" &&
	flux module debug --setbit 0x1 sched-simple &&
	id=$(flux submit hostname) &&
	flux job wait-event -t 120 -f json $id exception | jq -e ".context.note == \"DEBUG_FAIL_ALLOC\"" &&
	flux module debug --clearbit 0x1 sched-simple &&
	flux run hostname
'
test_expect_success 'a bad argument fails the load, and the reason is in the log' '
	flux module remove sched-simple &&
	flux dmesg -C &&
	test_must_fail flux module load sched-fifo queue-depth=bogus 2>err &&
	grep "Invalid argument" err &&
	dmesg-grep.py -t 120 "queue-depth=.bogus. is invalid: expected a positive integer"
'
test_expect_success 'it loads, and says how' '
	flux module load sched-fifo log-level=debug &&
	dmesg-grep.py -t 120 "sched-fifo.*ready: queue-depth=8 log-level=debug pool-class=Rv1Pool Rv1 rank\[0-3\]/core\[0-1\]"
'
test_expect_success 'a job that can never run ends with the reason' '
	id=$(flux submit -n1 -c100 hostname) &&
	flux job wait-event -t 120 -f json $id exception >event &&
	jq -e ".context.type == \"alloc\"" event &&
	jq -r .context.note event >note &&
	grep "need 1 slot(s) of 100 core(s)" note
'
test_expect_success 'a job runs, and shows where' '
	id=$(flux submit -N1 -n1 sleep inf) &&
	started $id &&
	test "$(shown $id resource_summary)" = "rank0/core0" &&
	flux cancel $id && flux job wait-event -t 120 $id clean
'
test_expect_success 'pending jobs show an estimate and a reason' '
	first=$(flux submit -N4 -n8 -t 10m sleep inf) &&
	started $first &&
	second=$(flux submit -N4 -t 10m sleep inf) &&
	third=$(flux submit -N1 -t 9m sleep inf) &&
	wait_shown $second t_estimate &&
	wait_shown $third t_estimate &&
	test_wait_until "flux jobs -no {annotations.sched.reason_pending} $second | grep \"needs 4 nodes\"" &&
	test_wait_until "flux jobs -no {annotations.sched.reason_pending} $third | grep behind"
'
test_expect_success 'priority decides' '
	flux job urgency $third 31 &&
	flux cancel $first &&
	started $third &&
	flux jobs -no {state} $second >state &&
	grep SCHED state
'
test_expect_success 'a pending job can be cancelled' '
	flux cancel $second &&
	flux job wait-event -t 120 $second clean &&
	flux job eventlog $second >log &&
	test_must_fail grep alloc log
'
test_expect_success 'running jobs survive a reload, and their cores stay theirs' '
	flux module reload sched-fifo &&
	id=$(flux submit -N4 -n8 hostname) &&
	flux jobs -no {state} $third | grep RUN &&
	test_must_fail flux job wait-event -t 0.5 $id alloc &&
	flux cancel $third &&
	started $id &&
	flux job wait-event -t 120 $id clean
'
test_expect_success 'many jobs, nothing left behind' '
	flux submit --cc=1-40 --quiet -n1 true &&
	flux queue drain --timeout=120 &&
	test $(stat pending_jobs) -eq 0 &&
	test $(stat errors) -eq 0 &&
	test $(stat sched_yields) -ge 40 &&
	flux module remove sched-fifo && flux module load sched-simple
'
test_done
