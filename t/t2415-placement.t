#!/bin/sh

test_description='jobs in one rack, or in as few as can be: [topology.LEVEL]

Eight nodes of two cores, in racks of four.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 8 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# job NODES [OPTION...]
job() {
	nodes=$1
	shift
	flux submit -N$nodes --exclusive -t 10m "$@" sleep 300
}
# in_racks JOBID "rack NAME,..."
in_racks() {
	test_wait_until "test \"\$(flux jobs -no {annotations.sched.placement} $1)\" = \"$2\""
}
ranks() {
	flux jobs -no "{ranks}" $1 | tr -d "[]"
}
clean() {
	flux cancel --all 2>/dev/null
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 8"
}
required="--setattr=system.placement.level=rack"

test_expect_success 'eight nodes, and the table' '
	flux module remove sched-simple &&
	flux kvs put resource.R="$(flux R encode -r 0-7 -c 0-1 -H n[0-7])" &&
	flux module reload resource noverify monitor-force-up &&
	cat >racks.toml <<-EOT &&
	[topology.rack]
	groups = {r1 = "n[0-3]", r2 = "n[4-7]"}
	EOT
	flux config load <racks.toml &&
	flux module load sched-backfill &&
	flux queue start --all --quiet &&
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 8"
'
test_expect_success 'jobs are put into a rack that is begun, and whole racks stay free' '
	one=$(job 1) && started $one &&
	two=$(job 2) && started $two &&
	test "$(ranks $one),$(ranks $two)" = "0,1-2" &&
	flux sched stats >stats && jq -e ".topology[0].idle_groups == 1" stats
'
test_expect_success 'a job that requires a rack gets it, and says which' '
	three=$(job 4 $required) && started $three &&
	test "$(ranks $three)" = 4-7 &&
	in_racks $three "rack r2" &&
	flux job info $three R | jq -e "has(\"scheduling\") | not"
'
test_expect_success 'another waits for one, with a reason and a promise' '
	flux cancel $one && flux job wait-event -t 20 $one clean &&
	four=$(job 3 $required) &&
	reason $four >reason && cat reason && grep "insufficient resources" reason &&
	flux cancel $three && started $four && in_racks $four "rack r2" &&
	five=$(job 3 $required) &&
	reason $five >reason && cat reason &&
	echo "placement: needs 3 nodes in one rack: 3 free, at most 2 in one rack" >expected &&
	test_cmp expected reason &&
	flux sched explain $five >explained && cat explained && grep "in one rack" explained &&
	flux sched explain --json $five | jq -e ".jobs[0].placement.mode == \"required\""
'
test_expect_success 'windows and top show how many racks are free and who waits for one' '
	flux sched windows >windows && cat windows &&
	grep "^LEVEL *FREE GROUPS *OF *FREE NODES IN ONE *JOBS WAITING" windows &&
	grep "^rack *0 *2 *2 *1$" windows &&
	guest flux sched windows | grep "^rack *0 *2 *2 *1$" &&
	flux sched top --once >top && cat top &&
	grep "^rack    0 of 2 groups wholly free, at most 2 free nodes in one   waiting for one: 1 job" top
'
test_expect_success 'a reload of the scheduler changes nothing of that' '
	flux module reload sched-backfill &&
	reason $five >reason && test_cmp expected reason &&
	flux cancel $two && started $five && in_racks $five "rack r1" && clean
'
test_expect_success 'sched-simple is back' '
	flux config load </dev/null &&
	flux module remove sched-backfill && flux module load sched-simple
'

test_done
