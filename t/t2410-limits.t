#!/bin/sh

test_description='limits of users, banks and queues: [limits.NAME]

Four nodes of two cores.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# running ID...: these and no others hold resources
running() {
	for id in "$@"; do flux job id --to=dec $id; done | sort >expected
	flux jobs -f running -no "{id.dec}" | sort >actual
	test_cmp expected actual
}
# used LIMIT DIMENSION: what is in use
used() {
	flux sched limits --json | jq "[.limits[] | select(.limit == \"$1\") | .used.$2] | add // 0"
}
me=$(id -un)

test_expect_success 'sched-backfill is loaded; without a table there are no limits' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4" &&
	flux module remove sched-simple &&
	flux module load sched-backfill &&
	flux sched limits >out && test_must_be_empty out
'
test_expect_success 'tables come into force with the configuration, for jobs that run already as well' '
	first=$(flux submit -N1 -x -t 10m sleep 300) && started $first &&
	cat >limits.toml <<-EOT &&
	[limits.me]
	per = "user"
	max = {nodes = 2}
	EOT
	flux config load <limits.toml &&
	test_wait_until "test \$(used me nodes) = 1"
'
test_expect_success 'over the limit a job waits, and is told why' '
	second=$(flux submit -N1 -x -t 10m sleep 300) && started $second &&
	third=$(flux submit -N1 -x -t 10m sleep 300) &&
	reason $third >reason && cat reason &&
	echo "limit me: $me has 2 of 2 nodes; needs 1" >expected &&
	test_cmp expected reason &&
	running $first $second
'
test_expect_success 'flux sched limits: what is in use' '
	flux sched limits >out && cat out &&
	grep "^LIMIT *WHOSE *NODES *CORES *GPUS *JOBS *WAITING" out &&
	grep "^me *$me *2/2 *- *- *- *1" out &&
	flux sched limits --no-header >bare && tail -n +2 out | test_cmp - bare
'
test_expect_success 'a guest sees nothing of others' '
	guest flux sched limits --json | jq -e ".limits == []" &&
	test_must_fail guest flux sched stats
'
test_expect_success 'an admin sees all of it, and changes nothing' '
	admin flux sched limits >seen && flux sched limits >out && test_cmp out seen &&
	admin flux sched explain $third | grep "waits: limit me: $me has 2 of 2 nodes; needs 1" &&
	test_must_fail guest flux sched explain $third &&
	admin_changes_nothing $third
'
test_expect_success 'a reload of the scheduler counts as before' '
	flux module reload sched-backfill &&
	test "$(used me nodes)" = 2 &&
	fourth=$(flux submit -N1 -x -t 10m sleep 300) &&
	reason $fourth | grep "limit me: $me has 2 of 2 nodes" &&
	running $first $second &&
	flux cancel $first && started $third &&
	flux cancel --all && flux job wait-event -t 20 $third clean >/dev/null
'
test_expect_success 'the name of a parent covers its virtual queues' '
	cat >queues.toml <<-EOT &&
	[queues.batch]
	[queues.expedite]
	parent = "batch"
	[limits.batch]
	per = "queue"
	queues = ["batch"]
	max = {jobs = 1}
	EOT
	flux config load <queues.toml 2>err || { cat err; test_skip_reason="no virtual queues"; true; } &&
	if test ! -s err; then
		flux queue start --all &&
		one=$(flux submit -q expedite -n1 -t 10m sleep 300) && started $one &&
		two=$(flux submit -q batch -n1 -t 10m sleep 300) &&
		reason $two | grep "limit batch: queue batch has 1 of 1 jobs in batch; needs 1" &&
		flux cancel $one && started $two && flux cancel $two &&
		flux job wait-event -t 20 $two clean >/dev/null
	fi
'
test_expect_success 'the scheduler of the start of the instance is back' '
	flux config load </dev/null &&
	flux queue start --all >/dev/null 2>&1 || flux queue start >/dev/null 2>&1
	flux module remove sched-backfill && flux module load sched-simple
'

test_done
