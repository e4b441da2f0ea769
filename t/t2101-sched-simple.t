#!/bin/sh

test_description='sched-simple: the hooks that tests use'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

test_expect_success 'the instance has it, with debug bit 2 set' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4" &&
	flux module list | grep "^sched-simple.*feasib"
'
test_expect_success 'bit 1: every request is denied' '
	flux module debug --setbit 0x1 sched-simple &&
	id=$(flux submit hostname) &&
	flux job wait-event -t 20 -f json $id exception | jq -e ".context.note == \"DEBUG_FAIL_ALLOC\"" &&
	flux module debug --clearbit 0x1 sched-simple &&
	flux run hostname
'
test_done
