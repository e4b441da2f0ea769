#!/bin/sh

test_description='many jobs with four plugins: nothing grows (SOAK_JOBS says how many jobs, 400)'

. "$(dirname "$0")/sharness.sh"
test -n "$REAL_FLUX" || { skip_all="no real Flux"; test_done; }
. "$SHARNESS_TEST_SRCDIR/jobtap/lib.sh"
test_under_flux 1 job

round=$((${SOAK_JOBS:-400} / 4))

run_round() {
	flux submit --quiet --cc=1-$round --setattr=system.exec.test.run_duration=0.001s true &&
	flux queue drain && flux job purge --force --num-limit=0 >/dev/null && sleep 1 &&
	flux jobtap query soak.so >$1 && cat $1
}

test_expect_success 'load four plugins' '
	printf "[node-limits]\nuser = 1000000\n" >conf.toml && flux config load conf.toml &&
	cp "$SHARNESS_TEST_SRCDIR/jobtap/soak.py" . &&
	for name in ./soak.py node-limits.py submit-policy.py priority-multifactor.py; do
	    flux jobtap load $name || return 1
	done
'
test_expect_success "run four rounds of $round jobs" '
	for i in 1 2 3 4; do run_round $i || return 1; done
'
test_expect_success 'the last left no more behind than the second' '
	for key in objects blocks; do
	    before=$(jq .$key 2) && after=$(jq .$key 4) &&
	    echo "$key: $before, then $after" &&
	    test $after -le $((before + 300)) || return 1
	done
'
test_expect_success 'and nothing was logged as an error' '
	flux dmesg >log && test_must_fail grep "job-manager.err.*jobtap" log
'
test_done
