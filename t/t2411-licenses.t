#!/bin/sh

test_description='licences: [licenses]

Four nodes of two cores.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# job COUNT [OPTION...]: a job that uses so many of matlab
job() {
	count=$1
	shift
	flux submit -n1 -t 10m --setattr=system.licenses.matlab=$count "$@" sleep 300
}
used() {
	flux sched limits --json | jq ".licenses[] | select(.name == \"$1\") | .used"
}

test_expect_success 'sched-backfill is loaded, and a job runs that names a licence nobody counts yet' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4" &&
	flux module remove sched-simple &&
	flux module load sched-backfill &&
	early=$(job 2) && started $early
'
test_expect_success 'with the table it counts' '
	cat >licenses.toml <<-EOT &&
	[licenses]
	matlab = 4
	ansys = {total = 3, reserved = 1}
	EOT
	flux config load <licenses.toml &&
	test_wait_until "test \$(used matlab) = 2"
'
test_expect_success 'a job waits while its licences are in use, and nobody behind it' '
	one=$(job 2) && started $one &&
	two=$(job 1) &&
	reason $two >reason && cat reason &&
	echo "licenses: matlab 4 of 4 in use; needs 1" >expected &&
	test_cmp expected reason &&
	other=$(flux submit -n1 -t 10m sleep 300) && started $other
'
test_expect_success 'flux sched limits lists them, for guests too' '
	flux sched limits >out && cat out &&
	grep "^LICENCE *USED *TOTAL *RESERVED *WAITING" out &&
	grep "^matlab *4 *4 *0 *1" out && grep "^ansys *0 *3 *1 *0" out &&
	guest flux sched limits >guest && test_cmp out guest
'
test_expect_success 'an admin is told of jobs of others, a guest is not; neither changes anything' '
	explained_to_admins_only $two "licenses: matlab 4 of 4 in use; needs 1" &&
	admin flux sched stats | jq -e "[.licenses[] | select(.name == \"matlab\") | .used] == [4]" &&
	test_must_fail guest flux sched stats &&
	admin_changes_nothing $two
'
test_expect_success 'a reload of the scheduler finds what runs' '
	flux module reload sched-backfill &&
	test "$(used matlab)" = 4 &&
	reason $two | grep "matlab 4 of 4 in use" &&
	flux cancel $early && started $two &&
	flux cancel --all && flux job wait-event -t 20 $two clean >/dev/null &&
	test_wait_until "test \$(used matlab) = 0"
'
test_expect_success 'what is used elsewhere is read from a file, again and again' '
	echo "matlab 3" >used.new && mv used.new used &&
	cat >elsewhere.toml <<-EOT &&
	[licenses]
	matlab = {total = 4, elsewhere = "$PWD/used", every = "1s", max-age = "10m"}
	EOT
	flux config load <elsewhere.toml &&
	one=$(job 2) &&
	reason $one >reason && cat reason &&
	echo "licenses: matlab 0 of 4 in use, 3 elsewhere; needs 2" >expected &&
	test_cmp expected reason &&
	flux sched limits >out && cat out && grep "^matlab *0 *4 *0 *1 *3 *[0-9]*s" out &&
	echo "matlab 2" >used.new && mv used.new used &&
	started $one && flux cancel $one &&
	flux job wait-event -t 20 $one clean >/dev/null
'
test_expect_success 'the last number holds, and that it is old is told' '
	echo "matlab 4" >used.new && touch -d "1 hour ago" used.new && mv used.new used &&
	test_wait_until "flux sched limits | grep \"^matlab .* 4 *1h.* (stale)\"" &&
	rm used &&
	test_wait_until "flux dmesg | grep \"elsewhere=.*: the last numbers hold\"" &&
	one=$(job 1) && reason $one | grep "4 elsewhere (1h ago); needs 1" &&
	flux cancel $one
'
test_expect_success 'sched-simple is back' '
	flux config load </dev/null &&
	flux module remove sched-backfill && flux module load sched-simple
'

test_done
