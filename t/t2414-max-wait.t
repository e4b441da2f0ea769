#!/bin/sh

test_description='jobs that are of no use if they start too late: max-wait, deadline

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

test_expect_success 'a job that has waited for as long as it may is denied, with the reason' '
	flux module remove sched-simple &&
	flux module load sched-backfill &&
	all=$(flux submit -n2 -t 10m sleep 300) && started $all &&
	id=$(flux submit -n2 -t 1m --setattr=system.max-wait=3600 true) &&
	flux sched explain $id >explain && grep "given up at" explain && flux cancel $id &&
	id=$(flux submit -n2 -t 1m --setattr=system.max-wait=2 true) &&
	why $id >note && cat note &&
	grep "^alloc: max-wait: not started within 2s (first start about" note
'
test_expect_success 'a deadline: denied when it cannot end in time any more' '
	deadline=$(($(date +%s) + 31)) &&
	id=$(flux submit -n2 -t 30s --setattr=system.deadline=$deadline true) &&
	why $id >note && cat note &&
	grep "^alloc: deadline: not started by .*, so it cannot end by " note
'
test_expect_success 'a queue that is stopped stops the clock' '
	id=$(flux submit -n2 -t 30s --setattr=system.max-wait=2 true) &&
	flux job wait-event -t 20 $id priority &&
	flux queue stop --quiet &&
	sleep 2.5 &&
	flux queue start --quiet &&
	test "$(flux jobs -no {state} $id)" = SCHED &&
	why $id >note && grep "not started within 2s" note
'
test_expect_success 'one that may not wait is denied at once, or starts' '
	id=$(flux submit -n2 -t 1m --setattr=system.max-wait=0 true) &&
	why $id >note && cat note &&
	grep "^alloc: max-wait: it could not start at once" note &&
	flux cancel $all && flux job wait-event -t 30 $all clean &&
	flux run -n2 -t 1m --setattr=system.max-wait=0 true
'
test_expect_success 'one that starts in time runs to its end, and nothing is left' '
	flux run -n2 -t 1m --setattr=system.max-wait=1 sleep 1.5 &&
	flux jobs -no {id} --filter=pending,running >left && test_must_be_empty left &&
	test "$(flux module stats sched-backfill | jq .errors)" = 0 &&
	flux module remove sched-backfill
'
test_done
