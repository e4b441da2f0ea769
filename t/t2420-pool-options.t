#!/bin/sh

test_description='options of the pool: cores that come with a GPU, cores that no job gets

Two nodes of eight cores and two GPUs.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 2 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# held JOBID: what a job holds of its first node
held() {
	flux job info $1 R | jq -r ".execution.R_lite[0].children | \"\(.core) \(.gpu)\""
}

test_expect_success 'eight cores and two GPUs each; without options a GPU comes with the core that is asked for' '
	flux module remove sched-simple &&
	flux kvs put resource.R="$(flux R encode -r 0-1 -c 0-7 -g 0-1 -H n[0-1])" &&
	flux module reload resource noverify monitor-force-up &&
	flux module load sched-backfill &&
	flux queue start --all --quiet &&
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 2" &&
	before=$(flux submit -N1 -x sleep 300) && started $before &&
	one=$(flux submit -n1 -g1 sleep 300) && started $one &&
	test "$(held $one)" = "0 0" && flux cancel $one &&
	flux job wait-event -t 20 $one clean >/dev/null
'
test_expect_success 'with them it brings its cores, without those of the system; a running job keeps its own' '
	flux module reload sched-backfill pool-cores-per-gpu=share pool-system-cores=0-1 &&
	one=$(flux submit -n1 -g1 sleep 300) && started $one &&
	test "$(held $one)" = "2-4 0" &&
	two=$(flux submit -n1 -g1 -c1 sleep 300) && started $two &&
	test "$(held $two)" = "5-7 1" &&
	test "$(held $before)" = "0-7 0-1"
'
test_expect_success 'whole nodes come without them' '
	flux cancel $before && flux job wait-event -t 20 $before clean >/dev/null &&
	node=$(flux submit -N1 -x sleep 300) && started $node &&
	test "$(held $node)" = "2-7 0-1"
'
test_expect_success 'what cannot be kept keeps the scheduler from loading, with the reason in the log' '
	flux cancel --all && flux job wait-event -t 20 $node clean >/dev/null &&
	flux job wait-event -t 20 $two clean >/dev/null &&
	flux module remove sched-backfill &&
	test_must_fail flux module load sched-backfill pool-system-cores=0-7 &&
	flux dmesg | grep "system_cores=.0-7.: no core is left on rank 0-1" &&
	flux module load sched-simple
'

test_done
