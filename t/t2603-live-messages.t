#!/bin/sh

test_description='bent requests to the scheduler of a running instance, from its owner and from a guest'

. "$(dirname "$0")/sharness.sh"
test_under_flux 1 job

messages() {
    flux python "$SHARNESS_TEST_SRCDIR/campaign/live_messages.py" "$@"
}

test_expect_success 'two jobs run, and two wait' '
	flux submit --quiet --cc=1-4 sleep 600 &&
	test_wait_until "test \$(flux jobs -n -f running | wc -l) = 2"
'
# All of them among fake services: t/python/campaign/test_messages.py.
former=sched-simple
for module in ${REAL_FLUX:+sched-simple sched-fifo} sched-backfill; do
    test_expect_success "$module: nothing changes, and everything is answered or dropped" '
	test $module = sched-simple || { flux module remove $former && flux module load $module; } && former=$module &&
	messages --seed=1 --requests=150 && guest messages --guest --seed=2 --requests=150
    '
done
test_expect_success 'the jobs can be cancelled, and others run' '
	flux cancel --all && flux run -n2 true &&
	flux module remove sched-backfill && flux module load sched-simple && flux run -n2 true
'
test_done
