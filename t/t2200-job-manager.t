#!/bin/sh

test_description='The job manager, as a user sees it

Urgency, hold, queues, updates of duration and queue, dependencies, limits, exceptions, housekeeping. Four nodes of two
cores, sched-simple.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4 job

events() {
	flux job eventlog "$1" | awk '{print $2}' | tr '\n' ' '
}
pending() {
	flux submit -N4 --exclusive -t "${1:-0}" true
}

test_expect_success 'all nodes are up' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4"
'
test_expect_success 'a job goes through all states' '
	id=$(flux submit --wait true) &&
	test "$(events $id)" = "submit validate depend priority alloc start finish release free clean "
'
test_expect_success 'fill the machine' '
	running=$(flux submit -N4 --exclusive -t 1h --setattr=exec.test.run_duration=1h true) &&
	flux job wait-event -t 20 $running start
'
test_expect_success 'urgency: hold, default, expedite' '
	id=$(pending) &&
	flux job urgency $id hold &&
	test "$(flux jobs -no "{priority}" $id)" = 0 &&
	flux job urgency $id default &&
	flux job urgency -v $id expedite 2>err &&
	grep "old urgency: 16" err &&
	test "$(flux jobs -no "{priority}" $id)" = 4294967295 &&
	flux cancel $id &&
	test "$(events $id)" = \
	    "submit validate depend priority urgency priority urgency priority urgency priority exception clean "
'
test_expect_success 'the urgency of a running job cannot be changed' '
	test_must_fail flux job urgency $running 20 2>err &&
	grep "urgency cannot be changed once resources are allocated" err
'
test_expect_success 'update the duration of a pending job' '
	id=$(pending 10m) &&
	flux update $id duration=20m &&
	test "$(flux jobs -no "{duration}" $id)" = 1200.0 &&
	flux job info $id jobspec | jq -e ".attributes.system.duration == 1200" &&
	flux job info --original $id jobspec | jq -e ".attributes.system.duration == 600" &&
	flux cancel $id
'
test_expect_success 'update the duration of a running job' '
	flux update $running duration=2h &&
	flux job wait-event -t 20 $running resource-update &&
	test "$(flux jobs -no "{duration}" $running)" = 7200.0 &&
	test_must_fail flux update $running queue=foo &&
	test_must_fail flux update $running foo=bar 2>err &&
	grep "update of attributes.system.foo not supported" err
'
test_expect_success 'a stopped queue sends nothing, and says so' '
	flux queue stop -m "maintenance" &&
	id=$(pending) &&
	flux queue status -v >status &&
	grep "Scheduling is stopped: maintenance" status &&
	grep "^0 alloc requests pending to scheduler" status &&
	flux queue start &&
	test_wait_until "flux queue status -v | grep \"^1 alloc requests pending\"" &&
	flux cancel $id
'
test_expect_success 'a disabled queue takes no jobs' '
	flux queue disable -m "no more" &&
	test_must_fail flux submit true 2>err &&
	grep "job submission is disabled: no more" err &&
	flux queue enable
'
test_expect_success 'dependencies: success and failure' '
	first=$(pending) &&
	ok=$(flux submit --dependency=afterok:$first true) &&
	any=$(flux submit --dependency=afterany:$first -N4 --exclusive true) &&
	test "$(flux jobs -no "{state}" $ok)" = DEPEND &&
	flux cancel $first &&
	flux job wait-event -t 20 -m type=dependency $ok exception &&
	flux job wait-event -t 20 $any depend &&
	flux cancel $any
'
test_expect_success 'exceptions: a harmless one, and a fatal one' '
	id=$(pending) &&
	flux job raise -s 3 -t foo $id "a note" &&
	test "$(flux jobs -no "{state}" $id)" = SCHED &&
	flux job raise -s 0 -t bar $id "the end" &&
	flux job wait-event -t 20 $id clean &&
	flux job eventlog $id | grep "exception type=\"bar\" severity=0 note=\"the end\""
'
test_expect_success 'free the machine' '
	flux cancel $running &&
	flux queue drain -t 20
'
test_expect_success 'named queues: defaults, constraints, start and stop' '
	cat >queues.toml <<-EOT &&
	[queues.batch]
	[queues.debug]
	policy.limits.job-size.max.nnodes = 1
	[policy.jobspec.defaults.system]
	queue = "batch"
	duration = "1h"
	EOT
	flux config load queues.toml &&
	flux queue status >status &&
	grep "batch: Scheduling is stopped" status &&
	flux queue start --all &&
	id=$(flux submit --wait true) &&
	test "$(flux jobs -no "{queue} {duration}" $id)" = "batch 3600.0" &&
	test_must_fail flux submit -q nosuch true 2>err &&
	grep "Invalid queue .nosuch. specified" err &&
	test_must_fail flux submit -q debug -N2 true 2>err &&
	grep "exceeds policy limit of 1" err
'
test_expect_success 'move a pending job to another queue' '
	flux queue stop --all &&
	id=$(flux submit -q debug true) &&
	flux update $id queue=batch &&
	test "$(flux jobs -no "{queue}" $id)" = batch &&
	flux queue start --all &&
	flux job wait-event -t 20 $id clean
'
test_expect_success 'back to one queue' '
	flux config load </dev/null &&
	flux queue status >status &&
	grep "^Scheduling is started" status
'
test_expect_success 'waitable jobs' '
	id=$(flux submit --flags=waitable false) &&
	test_must_fail flux job wait $id 2>err &&
	grep "exit code 1" err &&
	test_expect_code 2 flux job wait $id
'
test_expect_success 'housekeeping holds the nodes until it has ended' '
	cat >housekeeping.toml <<-EOT &&
	[job-manager.housekeeping]
	command = ["sleep", "300"]
	EOT
	flux config load housekeeping.toml &&
	id=$(flux submit --wait -N4 true) &&
	flux job wait-event -t 20 $id free &&
	flux config load </dev/null &&
	next=$(flux submit -N4 true) &&
	test_must_fail flux job wait-event -t 1 $next alloc &&
	flux housekeeping kill --all &&
	flux job wait-event -t 20 $next clean
'
test_expect_success 'jobs without a scheduler wait for one' '
	flux module remove sched-simple &&
	id=$(flux submit true) &&
	flux queue status >status &&
	grep "Scheduling is stopped: Scheduler is offline" status &&
	flux module load sched-simple &&
	flux job wait-event -t 20 $id clean
'
test_done
