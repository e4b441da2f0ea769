#!/bin/sh

test_description='flux sched: asking the scheduler, and reserving ahead of time

Four nodes of two cores. Windows begin seconds from now, so this takes some.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

started() {
	flux job wait-event -t 20 "$1" alloc >/dev/null
}
state() {
	flux sched reservations --json | jq -r ".reservations[] | select(.name == \"$1\") | .state"
}
wait_state() {
	test_wait_until -i 150 "test \"\$(flux sched reservations --json | jq -r '.reservations[] | select(.name == \"$1\") | .state')\" = \"$2\""
}
guest() {
	FLUX_HANDLE_USERID=9999 FLUX_HANDLE_ROLEMASK=0x2 "$@"
}

test_expect_success 'sched-backfill is loaded' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4" &&
	flux module remove sched-simple &&
	flux module load sched-backfill
'
test_expect_success 'its help names the subcommands' '
	flux sched --help >help &&
	for name in explain when windows plan top stats reserve unreserve reservations; do
		grep "^ *$name\\>" help || return 1
	done
'
test_expect_success 'a job would start now on an idle machine; one of five nodes never' '
	flux sched when -N4 -t 10m --match >when &&
	grep "^now" when &&
	test_must_fail flux sched when -N5 2>err &&
	grep "never: " err &&
	test_must_fail flux sched when -N1 --requires=nothing 2>err &&
	grep "never: " err
'
test_expect_success 'a blocked job is explained' '
	run=$(flux submit -N3 --exclusive -t 10m sleep 300) && started $run &&
	head=$(flux submit -N4 --exclusive -t 10m sleep 300) &&
	test_wait_until "test -n \"\$(flux jobs -no {annotations.sched.t_estimate} $head)\"" &&
	flux sched explain $head >explain && cat explain &&
	grep "waits: " explain &&
	grep "needs 4 nodes; of 4 nodes 4 match, 4 of them are up, 4 are large enough; 1 node free now" explain &&
	grep "behind $(flux job id --to=f58 $run), running, until" explain &&
	grep "it could start now with 1 node" explain &&
	grep "starts about .* (promised)" explain
'
test_expect_success 'the reason is the one that flux jobs shows' '
	flux jobs -no "{annotations.sched.reason_pending}" $head >annotated &&
	flux sched explain --json $head | jq -r ".jobs[0].reason" >said &&
	test_cmp annotated said
'
test_expect_success 'a job that fits under the promise is told how long it may be' '
	long=$(flux submit -N1 --exclusive -t 60m sleep 300) &&
	flux sched explain $long >explain && cat explain &&
	grep "behind $(flux job id --to=f58 $head)" explain &&
	grep "it could start now with a time limit of 9m" explain &&
	flux sched explain --all >all && cat all &&
	test $(wc -l <all) = 3 &&
	flux cancel $long
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
test_expect_success 'when comes after the promise' '
	flux sched when -N4 -t 1m --json >when.json &&
	jq -e ".verdict == \"later\" and .start > .now + 1100" when.json &&
	flux sched when -N1 -t 1m >when &&
	grep "^now" when
'
test_expect_success 'windows: one node for the ten minutes that the others run' '
	flux sched windows >windows && cat windows &&
	grep "2 cores *1 *4 *9m" windows
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
	flux cancel $head $run && flux queue idle --timeout=20
'
test_expect_success 'bad input: one line that names it' '
	test_must_fail flux sched explain notajob 2>err && test $(wc -l <err) = 1 && grep "notajob" err &&
	test_must_fail flux sched explain 1234 2>err && test $(wc -l <err) = 1 && grep "not a pending job" err &&
	test_must_fail flux sched windows --horizon=never 2>err && test $(wc -l <err) = 1 && grep "never" err &&
	test_must_fail flux sched reserve "a b" --start=+1h --duration=1h --nodes=1 2>err && test $(wc -l <err) = 1 &&
	test_must_fail flux sched reserve big --start=+1h --duration=1h --nodes=5 2>err && grep "big" err &&
	test_must_fail flux sched reserve past --start=2020-01-01T00:00 --duration=1h --nodes=1 2>err && grep "last window ended at" err &&
	test_must_fail flux sched unreserve nobody 2>err && grep "there is no reservation nobody" err
'
test_expect_success 'a dry run tells which jobs are in the way, and changes nothing' '
	run=$(flux submit -N1 --exclusive -t 10m sleep 300) && started $run &&
	flux sched reserve dat --start=+5m --duration=1h --nodes=4 --dry-run >dry && cat dry &&
	grep "would be reserved: 4 nodes" dry &&
	grep "in the way: $(flux job id --to=f58 $run) on 1 node" dry &&
	test $(flux sched reservations -n | wc -l) = 0 &&
	flux cancel $run && flux queue idle --timeout=20
'
test_expect_success 'a job that would run into a window waits, and is told why' '
	flux sched reserve dat --start=+5m --duration=1h --nodes=4 >made && cat made &&
	grep "dat is reserved: 4 nodes" made &&
	short=$(flux submit -N1 -t 1m sleep 0) && flux job wait-event -t 20 $short clean &&
	long=$(flux submit -N1 -t 1h sleep 300) &&
	none=$(flux submit -N1 sleep 300) &&
	test_wait_until "flux jobs -no {annotations.sched.reason_pending} $long | grep \"time limit too long before reservation dat, which begins at\"" &&
	test_wait_until "flux jobs -no {annotations.sched.reason_pending} $none | grep \"no time limit: it could run into reservation dat\"" &&
	flux sched explain $long >explain && cat explain &&
	grep "it could start now with a time limit of 4m" explain
'
test_expect_success 'it is kept over a reload' '
	flux module reload sched-backfill &&
	flux sched reservations >list && cat list && grep "dat *planned" list &&
	test_must_fail flux job wait-event -t 1 $long alloc
'
test_expect_success 'unreserve lets the jobs go' '
	flux sched unreserve dat &&
	started $long && started $none &&
	flux cancel $long $none && flux queue idle --timeout=20
'
test_expect_success 'in a window only the group runs' '
	flux sched reserve mine --start=+2s --duration=1h --nodes=4 --users=$(id -u) >made && cat made &&
	member=$(flux submit -N1 -t 10m --setattr=system.reservation=mine sleep 300) &&
	started $member &&
	wait_state mine active &&
	inside=$(flux submit -N3 --exclusive -t 2h --setattr=system.reservation=mine sleep 300) &&
	started $inside &&
	other=$(flux submit -N1 -n1 -t 10s true) &&
	test_must_fail flux job wait-event -t 2 $other alloc &&
	flux sched explain $other >explain && cat explain &&
	grep "4 of 4 nodes are reserved for mine until" explain
'
test_expect_success 'the job inside is told to end with the window' '
	flux job info $inside R | jq -e ".execution.expiration - .execution.starttime <= 3600"
'
test_expect_success 'a reload in the middle of a window' '
	flux module reload sched-backfill &&
	test "$(state mine)" = active &&
	flux cancel $inside && flux job wait-event -t 20 $inside clean &&
	test_must_fail flux job wait-event -t 2 $other alloc &&
	inside=$(flux submit -N3 --exclusive -t 10m --setattr=system.reservation=mine sleep 300) &&
	started $inside
'
test_expect_success 'what is reserved is not shown as allocated' '
	flux cancel $inside && flux job wait-event -t 20 $inside clean &&
	flux python -c "import flux, json; print(json.dumps(flux.Flux().rpc(\"sched.resource-status\").get()))" >status &&
	jq -e ".allocated.execution.R_lite | length == 1" status &&
	flux resource list -s allocated -no {nnodes} >allocated && test $(cat allocated) = 1
'
test_expect_success 'a rank of the window is drained: a warning, and in the list' '
	flux resource drain 3 &&
	test_wait_until "flux sched reservations | grep \"mine *degraded\"" &&
	flux sched reservations &&
	dmesg-grep.py -t 20 "reservation mine: 1 of 4 nodes" &&
	flux resource undrain 3 &&
	wait_state mine active
'
test_expect_success 'when the window is given up, others run' '
	flux sched unreserve mine &&
	flux job wait-event -t 20 $other clean &&
	flux cancel $member && flux queue idle --timeout=20
'
test_expect_success 'a job that names no reservation that exists waits for it; one of the wrong group is refused' '
	unknown=$(flux submit -N1 --setattr=system.reservation=later true) &&
	test_wait_until "flux jobs -no {annotations.sched.reason_pending} $unknown | grep \"reservation later does not exist\"" &&
	flux sched reserve later --start=+1h --duration=1h --nodes=1 --users=0,1 --queues=none &&
	flux job wait-event -t 20 $unknown clean &&
	flux job eventlog $unknown | grep "reservation later is not for" &&
	flux sched unreserve later
'
test_expect_success 'an extension into a window is allowed, and the reservation is short of it' '
	run=$(flux submit -N4 --exclusive -t 12s sleep 300) && started $run &&
	flux sched reserve ext --start=+15s --duration=1h --nodes=4 &&
	flux update $run duration=10m &&
	wait_state ext degraded &&
	flux sched reservations >list && cat list &&
	flux sched reservations --json | jq -e ".reservations[0].short == 4" &&
	flux cancel $run && wait_state ext active &&
	flux sched unreserve ext
'
test_expect_success 'guests: own jobs, counts of others, when and windows; they reserve nothing' '
	run=$(flux submit -N4 --exclusive -t 10m sleep 300) && started $run &&
	head=$(flux submit -N4 --exclusive -t 10m sleep 300) &&
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
	flux cancel $head $run && flux queue idle --timeout=20
'
test_expect_success 'reservations of the configuration, at flux config reload as well' '
	cat >conf.toml <<-EOF &&
	[reservations.weekly]
	start = "2030-01-01T08:00"
	duration = "4h"
	every = "1w"
	zone = "Europe/Berlin"
	nodes = 2
	EOF
	flux config load <conf.toml &&
	test_wait_until "flux sched reservations | grep \"weekly *planned\"" &&
	flux sched reservations &&
	test_must_fail flux sched unreserve weekly 2>err && grep "comes from the configuration" err &&
	flux module reload sched-backfill &&
	flux sched reservations | grep "weekly *planned" &&
	flux config load </dev/null &&
	test_wait_until "test \$(flux sched reservations -n | wc -l) = 0"
'
test_expect_success 'a bad table is a line in the log, and nothing else stops' '
	echo "[reservations.bad]" >bad.toml &&
	flux config load <bad.toml &&
	dmesg-grep.py -t 20 "configuration: [[]reservations.bad[]]: start is missing" &&
	flux config load </dev/null &&
	flux run -N1 true
'
for module in sched-fifo sched-simple; do
	test_expect_success "$module answers, and respects windows" '
		flux module list | grep -o "sched-[a-z]*" | xargs -n1 flux module remove &&
		flux module load '$module' &&
		flux sched reserve dat --start=+5m --duration=1h --nodes=4 &&
		long=$(flux submit -N1 -t 1h sleep 300) &&
		test_wait_until "flux jobs -no {annotations.sched.reason_pending} $long | grep \"before reservation dat\"" &&
		flux sched explain $long && flux sched windows && flux sched plan && flux sched top --once &&
		flux cancel $long &&
		flux run -N4 -t 1m true &&
		flux sched unreserve dat
	'
done

test_done
