#!/bin/sh

test_description='a malicious guest: t/campaign/guests.py for some seconds, against each scheduler'

. "$(dirname "$0")/sharness.sh"
# The C library keeps the memory of a large message, in any module: that must not count.
export MALLOC_TRIM_THRESHOLD_=1048576
test_under_flux 1 job

# With this seed no crowd asks sched.when, which takes 40 s of projections to answer.
attack() {
    flux python "$SHARNESS_TEST_SRCDIR/campaign/guests.py" --busy --seconds=10 --seed=6 "$@"
}
former=sched-simple
for module in sched-backfill sched-fifo; do
    test_expect_success "$module: no request is costly, nothing is kept, nothing is told" '
	flux module remove $former && flux module load $module && former=$module &&
	attack
    '
done
# A second user of the host, whom the broker knows by the socket.
test "$(id -u)" = 0 && nobody=$(id -u nobody 2>/dev/null) && test_set_prereq SECOND_USER
test_expect_success REAL_FLUX,SECOND_USER 'nor by another user of the host' '
	chmod 755 "$(flux getattr rundir)" && attack --userid="$nobody" &&
	chmod 700 "$(flux getattr rundir)"
'
test_expect_success 'jobs run as before' '
	flux queue idle --timeout=120 && flux run true &&
	flux module stats $former | jq -e ".errors == 0" &&
	flux module remove $former && flux module load sched-simple
'
test_done
