#!/bin/sh

test_description='jobs in one rack, or in as few as can be: [topology.LEVEL]

Eight nodes of two cores, in racks of four. The properties name the same racks.
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
preferred="$required --setattr=system.placement.mode=preferred"

test_expect_success 'eight nodes, and the table' '
	flux module remove sched-simple &&
	flux kvs put resource.R="$(flux R encode -r 0-7 -c 0-1 -H n[0-7] -p rack-a:0-3 -p rack-b:4-7)" &&
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
test_expect_success 'an admin is told of the job of another, a guest is not; neither changes anything' '
	explained_to_admins_only $five "in one rack" &&
	admin flux sched stats | jq -e ".topology | length == 1" &&
	admin_changes_nothing $five
'
test_expect_success 'a reload of the scheduler changes nothing of that' '
	flux module reload sched-backfill &&
	reason $five >reason && test_cmp expected reason &&
	flux cancel $two && started $five && in_racks $five "rack r1" && clean
'
test_expect_success 'what can never be is denied, with numbers' '
	id=$(job 5 $required) &&
	flux job wait-event -t 20 $id exception >exception && cat exception &&
	grep "need 5 nodes in one rack, at most 4 in one rack" exception &&
	test_must_fail flux sched when -N5 -t 1h $required 2>when && cat when &&
	grep "never: unsatisfiable request: need 5 nodes in one rack" when &&
	id=$(job 2 --setattr=system.placement.level=pod) &&
	flux job wait-event -t 20 $id exception >exception && cat exception &&
	grep "there is no such level: there are rack" exception &&
	id=$(job 2 $required --setattr=system.placement.segment=3) &&
	flux job wait-event -t 20 $id exception >exception && cat exception &&
	grep "2 nodes cannot be divided by that" exception
'
test_expect_success 'segments' '
	id=$(job 6 $required --setattr=system.placement.segment=3) && started $id &&
	in_racks $id "rack r1,r2" && clean
'
test_expect_success 'a job that prefers a rack waits for it, and then takes any nodes' '
	one=$(job 1 --requires=rank:0) && two=$(job 1 --requires=rank:4) && started $one && started $two &&
	three=$(job 4 $preferred --setattr=system.placement.wait=6s) &&
	reason $three | grep "placement: needs 4 nodes in one rack: 6 free, at most 3 in one rack" &&
	started $three &&
	in_racks $three "rack r1,r2" && clean
'
test_expect_success 'a reservation by count is in one rack, and leaves the other one' '
	one=$(job 1) && started $one &&
	flux sched reserve class --start=now --duration=1h --nodes=3 --users=$(id -un) &&
	flux sched reservations --json | jq -e ".reservations[0].ranks == \"1-3\"" &&
	flux sched reserve lesson --start=+1h --duration=1h --nodes=4 --pin --users=$(id -un) &&
	flux sched reservations --json >reservations && cat reservations &&
	jq -e "[.reservations[] | select(.name == \"lesson\") | .ranks] == [\"4-7\"]" reservations &&
	flux sched unreserve class && flux sched unreserve lesson && clean
'
test_expect_success 'a fault is one line, and the table stays as it was' '
	sed s/4-7/3-7/ racks.toml | flux config load &&
	flux dmesg | grep "configuration: \[topology.rack\] groups.r2=.*: 1 node of it in group r1 as well" &&
	id=$(job 4 $required) && started $id && in_racks $id "rack r1" && clean
'
test_expect_success 'racks by properties' '
	cat >properties.toml <<-EOT &&
	[topology.rack]
	property-prefix = "rack-"
	EOT
	flux config load <properties.toml &&
	id=$(job 4 $required) && started $id && in_racks $id "rack a" && clean
'
test_expect_success 'sched-fifo and sched-simple keep it, too' '
	flux config load <racks.toml &&
	for name in sched-fifo sched-simple; do
		flux module remove $(flux module list | grep -o "sched-[a-z]*" | head -n1) &&
		flux module load $name queue-depth=unlimited &&
		one=$(job 3 $required) && two=$(job 3 $required) && started $two &&
		in_racks $one "rack r1" && in_racks $two "rack r2" &&
		three=$(job 2 $required) &&
		reason $three | grep "in one rack: 2 free, at most 1 in one rack" &&
		flux cancel $one && started $three && clean || return 1
	done
'

test_done
