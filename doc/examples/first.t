#!/bin/sh
test_description='first.py starts jobs'
. "${FLUX_TEST_LIB:?}/sharness.sh"

test_under_flux 4 job

test_expect_success 'load the scheduler' '
    flux module remove sched-simple &&
    flux module load "$SHARNESS_TEST_SRCDIR/first.py"
'
test_expect_success 'a job is allocated' '
    id=$(flux submit -n2 hostname) &&
    flux job wait-event --timeout=10 $id alloc
'
test_expect_success 'a job that can never run is told so' '
    id=$(flux submit -n1 -c100 hostname) &&
    flux job wait-event --timeout=10 -v $id exception | grep "100 core"
'
test_expect_success 'remove it' '
    flux module remove first
'
test_done
