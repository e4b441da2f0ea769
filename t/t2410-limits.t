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

	[limits.red]
	per = "bank"
	banks = ["red"]
	max = {jobs = 1}
	deny = true
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
test_expect_success 'explain says whose, how much, and when again' '
	flux sched explain $third >explain && cat explain &&
	grep "waits: limit me: $me has 2 of 2 nodes; needs 1" explain &&
	grep "limit me: again about .*, when $(flux job id --to=f58 $first) ends" explain &&
	flux sched explain --json $third | jq -e ".jobs[0].limit | .used == 2 and .max == 2"
'
test_expect_success 'a larger one is told that it will wait; another job of a core goes beside its own' '
	large=$(flux submit -N3 -x -t 10m sleep 300) &&
	reason $large >reason && cat reason &&
	echo "limit me: needs 3 nodes, at most 2 are allowed" >expected &&
	test_cmp expected reason &&
	flux cancel $large
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
test_expect_success 'the next starts when the count falls' '
	flux cancel $first && started $third &&
	running $second $third
'
test_expect_success 'a reload of the scheduler counts as before' '
	flux module reload sched-backfill &&
	test "$(used me nodes)" = 2 &&
	fourth=$(flux submit -N1 -x -t 10m sleep 300) &&
	reason $fourth | grep "limit me: $me has 2 of 2 nodes" &&
	running $second $third
'
test_expect_success 'a bank has its own; of a job of two, one is denied' '
	flux cancel $fourth &&
	sed "s/nodes = 2/nodes = 4/" limits.toml | flux config load &&
	bank=$(flux submit -n1 -t 10m --bank=red sleep 300 || flux submit -n1 -t 10m --setattr=system.bank=red sleep 300) &&
	started $bank &&
	again=$(flux submit -n1 -t 10m --setattr=system.bank=red sleep 300) &&
	reason $again | grep "limit red: bank red has 1 of 1 jobs; needs 1" &&
	flux module reload sched-backfill &&
	test "$(used red jobs)" = 1 &&
	reason $again | grep "limit red: " &&
	flux cancel $again
'
test_expect_success 'a fault is one line, and the limit stays as it was' '
	flux cancel --all && flux job wait-event -t 20 $bank clean >/dev/null &&
	test_wait_until "test \$(used me nodes) = 0" &&
	sed "s/nodes = 2/nodes = -2/; s/^deny.*/colour = 1/" limits.toml | flux config load &&
	flux dmesg | grep "configuration: \[limits" >log; cat log &&
	grep "\[limits.me\] max.nodes=-2: expected a whole number, 0 or more" log &&
	grep "\[limits.red\] colour: unknown key" log &&
	test $(wc -l <log) = 2 &&
	job=$(flux submit -n1 -t 10m --setattr=system.bank=red sleep 300) && started $job &&
	again=$(flux submit -n1 -t 10m --setattr=system.bank=red sleep 300) &&
	reason $again | grep "limit red: "
'
test_expect_success 'without the tables nothing is limited any more' '
	flux config load </dev/null &&
	started $again &&
	flux sched limits >out && test_must_be_empty out &&
	flux cancel --all && flux job wait-event -t 20 $again clean >/dev/null
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
test_expect_success 'sched-fifo and sched-simple keep them, too' '
	flux config load <limits.toml 2>err; cat err &&
	for name in sched-fifo sched-simple; do
		flux module remove $(flux module list | grep -o "sched-[a-z]*" | head -n1) &&
		flux module load $name queue-depth=unlimited &&
		one=$(flux submit -N2 -x -t 10m sleep 300) && started $one &&
		two=$(flux submit -N1 -x -t 10m sleep 300) &&
		reason $two | grep "limit me: $me has 2 of 2 nodes; needs 1" &&
		flux cancel $one && started $two && flux cancel $two &&
		flux job wait-event -t 20 $two clean >/dev/null || return 1
	done
'
test_expect_success 'the scheduler of the start of the instance is back' '
	flux config load </dev/null &&
	flux queue start --all >/dev/null 2>&1 || flux queue start >/dev/null 2>&1; true
'

test_expect_success 'a configuration is checked before it is loaded' '
	mkdir conf.d &&
	cat >conf.d/limits.toml <<-EOF &&
	[queues.batch]
	[limits.new]
	per = "user"
	queues = ["batc"]
	max = {jobs = 2}
	[limit.b]
	per = "user"
	EOF
	flux sched check-config conf.d >checked &&
	test_debug "cat checked" &&
	grep "^configuration: \[limit\] is read by nobody: is \[limits\] meant?$" checked &&
	grep "there is no queue .batc.: is .batch. meant?$" checked &&
	grep "^\[limits\] new: new$" checked &&
	printf "[limits.a]\nper = \"usr\"\n" >bad.toml &&
	test_must_fail flux sched check-config bad.toml >checked 2>&1 &&
	grep "limits.a. per=.usr.: expected" checked &&
	grep "ERROR: 1 fault$" checked &&
	test_must_fail flux sched check-config none.toml
'
test_expect_success 'and which jobs would be over a new limit is told' '
	flux module remove $(flux module list | grep -o "sched-[a-z]*" | head -n1) &&
	flux module load sched-backfill &&
	one=$(flux submit -N2 -x -t 10m sleep 300) && started $one &&
	two=$(flux submit -N3 -x -t 10m sleep 300) && reason $two &&
	printf "[limits.new]\nper = \"user\"\nmax = {nodes = 1}\n" >over.toml &&
	flux sched check-config over.toml >checked && cat checked &&
	grep "^limit new: $me has 2 of 1 nodes: $(flux job id --to=f58 $one) run on$" checked &&
	grep "^limit new: needs 3 nodes, at most 1 is allowed: $(flux job id --to=f58 $two) would wait$" checked &&
	flux cancel --all && flux job wait-event -t 20 $one clean >/dev/null &&
	flux module remove sched-backfill && flux module load sched-simple
'

test_done
