#!/bin/sh

test_description='a guest who means harm: t/campaign/guests.py for some seconds, against each scheduler'

. "$(dirname "$0")/sharness.sh"
test_under_flux 1 job

# Other work on the machine holds up anybody now and then: a bound counts as exceeded if it is so twice.
attack() {
    flux python "$SHARNESS_TEST_SRCDIR/campaign/guests.py" --seconds=10 --seed=1 ||
        flux python "$SHARNESS_TEST_SRCDIR/campaign/guests.py" --seconds=10 --seed=1
}
former=sched-simple
for module in sched-backfill sched-fifo; do
    test_expect_success "$module: nobody waits long, nothing is kept, nothing is told" '
	flux module remove $former && flux module load $module && former=$module &&
	attack
    '
done
test_expect_success 'jobs run as before' '
	flux queue idle --timeout=30 && flux run true &&
	flux module stats $former | jq -e ".errors == 0" &&
	flux module remove $former && flux module load sched-simple
'
test_done
