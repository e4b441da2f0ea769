#!/bin/sh

test_description='sched-backfill: promises, jobs that go ahead, nodes that are down, nodes that leave'

. "$(dirname "$0")/sharness.sh"
# A test takes a broker away; on a real Flux that broker's exit code is not the script's.
test_under_flux 4 job ${REAL_FLUX:+--test-exit-mode=leader}

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

sched() {
	flux jobs -no "{annotations.sched.$2}" "$1"
}
# take_away RANK: its broker goes for good.
take_away() {
	if test -n "$REAL_FLUX"; then
		flux overlay disconnect "$1"
	else
		flux python -c "import flux; flux.Flux().rpc('overlay.disconnect', {'rank': $1}).get()"
	fi
}
stat() {
	flux module stats sched-backfill | jq -r ".$1"
}

test_expect_success 'it loads' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4" &&
	flux module remove sched-simple &&
	flux module load sched-backfill &&
	dmesg-grep.py -t 120 "sched-backfill.*ready: queue-depth=unlimited"
'
test_expect_success 'the first blocked job has a reservation' '
	run=$(flux submit -N3 --exclusive -t 60m sleep inf) && started $run &&
	head=$(flux submit -N4 --exclusive -t 10m sleep inf) &&
	test_wait_until "test -n \"\$(flux jobs -no {annotations.sched.t_estimate} $head)\"" &&
	test $(stat reserved) -eq 1
'
test_expect_success 'a short job goes ahead, a long one does not' '
	long=$(flux submit -N1 -t 2h sleep inf) &&
	short=$(flux submit -N1 -t 10m sleep inf) && started $short &&
	test "$(sched $short backfill)" = "$(flux job id --to=f58 $head)" &&
	test "$(sched $short selection_type)" = backfilled &&
	test_must_fail flux job wait-event -t 0.5 $long alloc &&
	flux cancel $short
'
test_expect_success 'when the head goes, the others follow' '
	flux cancel $head &&
	started $long &&
	test "$(sched $long selection_type)" = immediate &&
	flux cancel $long $run && flux queue idle --timeout=120
'
test_expect_success 'a job that waits for a drained node does not block others' '
	flux resource drain 3 &&
	head=$(flux submit -N4 -t 1m --urgency=31 true) &&
	test_wait_until "test \"\$(flux module stats sched-backfill | jq .parked)\" = 1" &&
	test_wait_until "flux jobs -no {annotations.sched.reason_pending} $head | grep \"1 of 4 matching nodes is down\"" &&
	run=$(flux submit -N1 -t 60m sleep inf) && started $run &&
	flux cancel $run && flux job wait-event -t 120 $run clean &&
	flux resource undrain 3 &&
	flux job wait-event -t 120 $head clean
'
test_expect_success 'a new limit of a running job moves the reservation' '
	run=$(flux submit -N4 --exclusive -t 10m sleep inf) && started $run &&
	head=$(flux submit -N4 -t 10m true) &&
	test_wait_until "test -n \"\$(flux jobs -no {annotations.sched.t_estimate} $head)\"" &&
	before=$(sched $head t_estimate) &&
	flux update $run duration=30m &&
	test_wait_until "test \"\$(flux jobs -no {annotations.sched.t_estimate} $head)\" != $before" &&
	flux cancel $run && flux job wait-event -t 120 $head clean
'
test_expect_success 'a node leaves for good: a job that needs it is denied' '
	head=$(flux submit -N4 -t 10m sleep inf) && started $head &&
	wide=$(flux submit -N4 -t 1m true) &&
	flux cancel $head && flux job wait-event -t 120 $wide clean &&
	flux resource drain 3 &&
	wide=$(flux submit -N4 -t 1m true) &&
	test_must_fail flux job wait-event -t 0.5 $wide alloc &&
	take_away 3 &&
	flux job wait-event -t 120 -f json $wide exception | jq -r .context.note >note &&
	grep "need 4 exclusive node(s)" note &&
	flux run -N3 true
'
test_expect_success 'it is removed' '
	flux module remove sched-backfill
'
test_done
