#!/bin/sh

test_description='what sched-backfill keeps over its reload: latest starts and run times'

. "$(dirname "$0")/sharness.sh"

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

cat >script.sh <<'EOT'
set -e
reload() {
	flux module remove $1
	flux module load sched-backfill profile=short-waits
}
told() {
	flux jobs -no '{annotations.sched.t_latest}' $1
}
reload sched-simple

# Two jobs of 100 s that end at once.
for i in 1 2; do
	flux job wait-event $(flux submit -N1 -n1 -t 100s true) clean >/dev/null
done
running=$(flux submit -N2 --exclusive -t 10m sleep 600)
flux job wait-event $running start >/dev/null
first=$(flux submit -N2 --exclusive -t 20m true)
second=$(flux submit -N2 --exclusive -t 100s true)
for i in 1 2 3 4 5 6 7 8 9 10; do
	told "$first $second" >before
	test $(grep -c "^[0-9]" before) = 2 && break
	sleep 0.3
done
flux sched explain --json $second >explained-before.json
reload sched-backfill
for i in 1 2 3 4 5 6 7 8 9 10; do
	told "$first $second" >after
	cmp -s before after && break
	sleep 0.3
done
flux sched explain --json $second >explained.json
flux module stats sched-backfill >stats.json
flux kvs get checkpoint.sched-history >history.json
flux kvs get checkpoint.sched-promises >promises.json
flux cancel --all
flux queue drain
flux dmesg | grep sched-backfill >log
flux module remove sched-backfill
flux module load sched-simple
EOT

test_expect_success 'a scheduler with run times and latest starts is loaded twice' '
	run_timeout 120 flux start --test-size=2 -Slog-stderr-level=3 sh script.sh
'
test_expect_success 'both jobs were told a latest start, and have it after the reload' '
	test $(grep -c "^[0-9]" before) = 2 &&
	test_cmp before after &&
	jq -e ".latest_starts.restored == 2 and .latest_starts.violated == 0" stats.json &&
	jq -e ".latest | length == 2" promises.json
'
test_expect_success 'what was learnt of run times is there as well, without clean-up' '
	jq -e ".classes | length >= 1" history.json &&
	jq -e ".jobs[0].expected_run == 1" explained-before.json &&
	jq -e ".jobs[0].expected_run == 1" explained.json
'
test_expect_success 'the scheduler has logged no error' '
	test_must_fail grep "\.err" log
'
test_done
