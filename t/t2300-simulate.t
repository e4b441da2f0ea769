#!/bin/sh

test_description='flux simulate: traces through schedulers, and the running instance, on either host'

. "$(dirname "$0")/sharness.sh"
# On a real Flux the command lies in a directory of its own.
if test -n "$REAL_FLUX" && test -z "$FLUX_TEST_INSTALLED_PATH"; then
	FLUX_EXEC_PATH_PREPEND=$FLUX_SOURCE_DIR/src/cmd && export FLUX_EXEC_PATH_PREPEND
fi
test_under_flux 2 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }
flux simulate --help >/dev/null 2>&1 || { skip_all="no Python with greenlet"; test_done; }

test_expect_success 'the sample under two policies, with files and a report' '
	flux simulate sample --jobs=200 --scheduler=sched-fifo --scheduler=sched-backfill -o out >table 2>progress &&
	grep "1,800 jobs left out: after the first 200" table &&
	grep "^sched-backfill" table &&
	test $(wc -l <out/sched-fifo/jobs.csv) -eq 201 &&
	jq -e ".figures.started == 200" out/sched-fifo/summary.json &&
	grep -q "<svg" out/report.html
'
test_expect_success 'as jobs of the instance they are the same, and nothing else is left' '
	flux simulate sample --jobs=200 --scheduler=sched-fifo --scheduler=sched-backfill --parallel=flux -q -o jobs >table.jobs &&
	test $(flux jobs -a -no {name} | grep -c "^simulate-[01]$") -eq 2 &&
	test "$(ls -A jobs)" = "$(ls -A out)" &&
	for file in sched-fifo/jobs.csv sched-backfill/jobs.csv sched-backfill/schedule.json sched-backfill/machine_states.csv; do
		test_cmp out/$file jobs/$file || return 1
	done
'
test_expect_success 'output and exceptions of a policy in a job are shown here' '
	printf "print(\"hello\")\ndef mod_main(h, *args):\n    raise RuntimeError(\"no way\")\n" >raises.py &&
	test_expect_code 1 flux simulate sample --jobs=5 --scheduler=./raises.py --parallel=flux -q >raised 2>&1 &&
	grep "^hello" raised && grep "RuntimeError: no way" raised
'
test_expect_success 'tune as jobs gives the same result' '
	tune="flux simulate tune --model=lublin --jobs=50 --nodes=16 --splits=6 --against=sched-fifo --scheduler=sched-backfill -q" &&
	$tune >tuned && $tune --parallel=flux >tuned.jobs &&
	test_cmp tuned tuned.jobs
'
test_expect_success 'the instance is kept busy' '
	flux resource list -s up -no {nnodes} >nodes &&
	flux submit -N2 --exclusive -t 10m sleep inf >first &&
	flux job wait-event -t 120 $(cat first) start &&
	flux submit -N1 -t 10m sleep inf >second &&
	flux submit -N2 -t 5m true >third &&
	flux job wait-event -t 120 $(cat third) priority
'
test_expect_success 'when its jobs will start' '
	flux simulate --live --scheduler=sched-fifo --scheduler=sched-backfill -q >live &&
	grep "$(cat second)" live && grep "$(cat third)" live &&
	! grep "$(cat first)" live &&
	! grep never live
'
test_expect_success 'with its nodes drained from now on none of them starts' '
	echo "0 drain 0-1" >script &&
	flux simulate --live --scheduler=sched-fifo --script=script -q >live.drained &&
	test $(grep -c never live.drained) -eq 2
'
test_expect_success 'nothing in it was changed' '
	flux resource drain -no {ranks} >drained &&
	test_must_be_empty drained &&
	test $(flux jobs -f running -no {id} | wc -l) -eq 1
'
test_expect_success 'its history keeps the rules' '
	flux cancel --all &&
	flux queue drain &&
	flux simulate check --live >checked &&
	grep "jobs of the instance: no rule broken" checked
'
test_expect_success 'with nothing to wait for there is nothing to say' '
	test_must_fail flux simulate --live 2>err &&
	grep "no job waits for resources" err
'

test_done
