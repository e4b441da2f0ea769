#!/bin/sh

test_description='sched-simple: the hooks that tests use, and partial release'

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
test_expect_success 'nodes come back one by one with housekeeping' '
	flux config load <<-EOF &&
	[job-manager.housekeeping]
	command = [ "sh", "-c", "test \$(flux getattr rank) -gt 1 && sleep 300; true" ]
	release-after = "0s"
	EOF
	id=$(flux submit -N4 --exclusive true) &&
	flux job wait-event -t 20 $id clean &&
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -ge 2" &&
	next=$(flux submit -N2 --exclusive sleep 300) &&
	flux job wait-event -t 20 $next alloc &&
	flux jobs -no {ranks} $next >ranks && grep "0-1" ranks
'
test_expect_success 'and a reload in between takes over what is left' '
	flux module reload sched-simple &&
	test_must_fail flux job wait-event -t 0.2 $(flux submit -N3 true) alloc &&
	flux cancel --all --states=pending && flux cancel $next &&
	flux housekeeping kill --all &&
	flux config load </dev/null &&
	flux queue idle --timeout=30 &&
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4" &&
	flux module stats sched-simple | jq -e ".errors == 0"
'
test_done
