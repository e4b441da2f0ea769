#!/bin/sh

test_description='flux sched: asking the scheduler, and reserving ahead of time

Four nodes of two cores.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

test_expect_success 'sched-backfill is loaded' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4" &&
	flux module remove sched-simple &&
	flux module load sched-backfill
'
test_expect_success 'a job would start now on an idle machine; one of five nodes never' '
	flux sched when -N4 -t 10m --match >when &&
	grep "^now" when &&
	test_must_fail flux sched when -N5 2>err &&
	grep "never: " err &&
	test_must_fail flux sched when -N1 --requires=host:nosuch 2>err &&
	grep "host .nosuch. not found" err &&
	test_must_fail flux sched when -N1 --requires=nothing 2>err &&
	grep "never: " err
'
test_expect_success 'a blocked job is explained' '
	run=$(flux submit -N3 --exclusive -t 10m sleep inf) && started $run &&
	head=$(flux submit -N4 --exclusive -t 10m sleep inf) &&
	test_wait_until "test -n \"\$(flux jobs -no {annotations.sched.t_estimate} $head)\"" &&
	flux sched explain $head >explain && cat explain &&
	grep "waits: " explain &&
	grep "needs 4 nodes; of 4 nodes 4 match, 4 of them are up, 4 are large enough; 1 node free now" explain &&
	grep "behind $(flux job id --to=f58 $run), running, until" explain &&
	grep "it could start now with 1 node" explain &&
	grep "starts about .* (promised)" explain
'
test_expect_success 'a job that the scheduler has not been given is explained as well' '
	after=$(flux submit -N1 -t 1m --dependency=afterany:$head true) &&
	held=$(flux submit -N1 -t 1m --urgency=hold true) &&
	flux sched explain $after >explain && cat explain &&
	grep "waits: dependencies: after-finish=$(flux job id --to=f58 $head)" explain &&
	flux sched explain $held >explain && cat explain &&
	grep "waits: held" explain &&
	flux sched explain --json $held | jq -e ".jobs[0].verdict == \"waits\"" &&
	flux sched explain --all >all && cat all &&
	tail -1 all | grep "^2 pending jobs not sent to the scheduler yet" &&
	test_must_fail flux sched explain $run 2>err && grep "its state is RUN" err &&
	guest flux sched explain --all | tee all && ! grep "not sent to the scheduler" all &&
	test_must_fail guest flux sched explain $held 2>err && grep "is not a pending job" err &&
	flux queue stop -m "until noon" -a &&
	late=$(flux submit -N1 -t 1m true) &&
	flux sched explain $late >explain && cat explain &&
	grep "the queue is stopped: until noon" explain &&
	flux cancel $after $held $late && flux queue start -a &&
	test_wait_until "test -n \"\$(flux jobs -no {annotations.sched.t_estimate} $head)\""
'
test_expect_success 'windows: one node for the ten minutes that the others run' '
	flux sched windows >windows && cat windows &&
	grep "2 cores *1 *4 *[1-9]m" windows
'
test_expect_success 'plan: the running job, the promise, text and SVG' '
	flux sched plan >plan && cat plan &&
	grep "$(flux job id --to=f58 $run)" plan &&
	grep "$(flux job id --to=f58 $head)" plan &&
	flux sched plan -o plan.svg && grep "</svg>" plan.svg
'
test_expect_success 'stats, and top once' '
	flux sched stats >stats.json && jq -e ".nodes.allocated == 3 and .nodes.free == 1" stats.json &&
	flux sched stats --prometheus >prom && cat prom &&
	grep "^flux_sched_nodes{.*state=\"free\".*} 1$" prom &&
	flux sched top --once >top && cat top &&
	grep "3 allocated *1 free" top &&
	flux cancel $head $run && flux queue idle --timeout=120
'
test_expect_success 'a job that would run into a window waits, with the reason' '
	flux sched reserve dat --start=+1h --duration=1h --nodes=4 >made && cat made &&
	grep "dat is reserved: 4 nodes" made &&
	short=$(flux submit -N1 -t 1m sleep 0) && flux job wait-event -t 120 $short clean &&
	long=$(flux submit -N1 -t 2h sleep inf) &&
	none=$(flux submit -N1 sleep inf) &&
	test_wait_until "flux jobs -no {annotations.sched.reason_pending} $long | grep \"time limit too long before reservation dat, which begins at\"" &&
	test_wait_until "flux jobs -no {annotations.sched.reason_pending} $none | grep \"no time limit: it could run into reservation dat\"" &&
	flux sched explain $long >explain && cat explain &&
	grep "it could start now with a time limit of [1-5][0-9]m" explain
'
test_expect_success 'it is kept over a reload' '
	flux module reload sched-backfill &&
	flux sched reservations >list && cat list && grep "dat *planned" list &&
	test "$(flux jobs -no {state} $long)" = SCHED
'
test_expect_success 'unreserve lets the jobs go' '
	flux sched unreserve dat &&
	started $long && started $none &&
	flux cancel $long $none && flux queue idle --timeout=120
'
test_expect_success 'output that cannot be written is an error of one line' '
	test_expect_code 1 flux sched windows >/dev/full 2>err &&
	test "$(cat err)" = "flux-sched: ERROR: No space left on device"
'
test_expect_success 'guests: own jobs, counts of others, when and windows; they reserve nothing' '
	run=$(flux submit -N4 --exclusive -t 10m sleep inf) && started $run &&
	head=$(flux submit -N4 --exclusive -t 10m sleep inf) &&
	test_wait_until "test -n \"\$(flux jobs -no {annotations.sched.t_estimate} $head)\"" &&
	guest flux sched when -N4 -t 1m --json | jq -e ".verdict == \"later\"" &&
	guest flux sched windows >windows &&
	guest flux sched explain --all --json | tee all.json | jq -e ".jobs == [] and .others == 1" &&
	test_must_fail guest flux sched explain $head 2>err && grep "is not a pending job" err &&
	test_must_fail guest flux sched reserve g --start=+1h --duration=1h --nodes=1 2>err && cat err &&
	grep "only the owner" err &&
	test_must_fail guest flux sched unreserve g &&
	test_must_fail guest flux sched stats &&
	guest flux sched reservations &&
	flux cancel $head $run && flux queue idle --timeout=120 &&
	flux module remove sched-backfill && flux module load sched-simple
'

test_done
