#!/bin/sh

test_description='jobs that are of no use if they start too late: max-wait, deadline, early

One node of two cores, which a job holds. On both hosts.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 1 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# The exception that ended a job: its type and its note.
why() {
	flux job wait-event -t 30 "$1" clean >/dev/null &&
	test "$(flux jobs -no {result} "$1")" = FAILED &&
	flux job eventlog "$1" >eventlog.why &&
	! grep " alloc\>" eventlog.why &&
	flux jobs -no "{exception.type}: {exception.note}" "$1"
}

for module in sched-fifo sched-backfill; do
	test_expect_success "$module: a job that has waited for as long as it may is denied, with the reason" '
		test_might_fail flux module remove sched-simple &&
		test_might_fail flux module remove sched-fifo &&
		flux module load '$module' queue-depth=unlimited &&
		all=$(flux submit -n2 -t 10m sleep 300) && started $all &&
		id=$(flux submit -n2 -t 1m --setattr=system.max-wait=3600 true) &&
		flux sched explain $id >explain && grep "given up at" explain &&
		admin flux sched explain $id | grep "given up at" &&
		test_must_fail guest flux sched explain $id && flux cancel $id &&
		id=$(flux submit -n2 -t 1m --setattr=system.max-wait=2 true) &&
		why $id >note && cat note &&
		grep "^alloc: max-wait: not started within 2s (first start about" note
	'
	test_expect_success "$module: one that may not wait is denied at once, or starts" '
		id=$(flux submit -n2 -t 1m --setattr=system.max-wait=0 true) &&
		why $id >note && cat note &&
		grep "^alloc: max-wait: it could not start at once" note &&
		flux cancel $all && flux job wait-event -t 30 $all clean &&
		flux run -n2 -t 1m --setattr=system.max-wait=0 true
	'
	test_expect_success "$module: one that starts in time runs to its end" '
		id=$(flux submit -n2 -t 1m --setattr=system.max-wait=2 sleep 4) && started $id &&
		flux job attach $id
	'
	test_expect_success "$module: the job manager has no more to do, and the scheduler no complaints" '
		flux jobs -no {id} --filter=pending,running >left && test_must_be_empty left &&
		test "$(flux module stats '$module' | jq .errors)" = 0 &&
		flux module remove '$module'
	'
done
test_expect_success 'a deadline: denied when it cannot end in time any more' '
	flux module load sched-backfill &&
	all=$(flux submit -n2 -t 10m sleep 300) && started $all &&
	deadline=$(($(date +%s) + 34)) &&
	id=$(flux submit -n2 -t 30s --setattr=system.deadline=$deadline true) &&
	why $id >note && cat note &&
	grep "^alloc: deadline: not started by .*, so it cannot end by " note
'
test_expect_success 'early: a promise that is too late ends it' '
	id=$(flux submit -n2 -t 30s --setattr=system.max-wait=5m --setattr=system.early=true true) &&
	why $id >note && cat note &&
	grep "^alloc: max-wait: not started within 5m (it is promised " note
'
test_expect_success 'a queue that is stopped stops the clock' '
	id=$(flux submit -n2 -t 30s --setattr=system.max-wait=4 true) &&
	flux job wait-event -t 20 $id priority &&
	flux queue stop --quiet &&
	sleep 5 &&
	flux queue start --quiet &&
	test "$(flux jobs -no {state} $id)" = SCHED &&
	why $id >note && grep "not started within 4s" note
'
test_expect_success 'what cannot be read is denied with what was expected' '
	id=$(flux submit -n1 --setattr=system.max-wait=soon true) &&
	why $id >note && grep "max-wait=.soon. is invalid: expected a length of time" note &&
	id=$(flux submit -n1 -t 1m --setattr=system.deadline=tomorrow true) &&
	why $id >note && grep "deadline=.tomorrow. is invalid: expected seconds since the epoch" note &&
	flux cancel $all
'
test_expect_success 'it is removed' '
	flux module remove sched-backfill
'
test_done
