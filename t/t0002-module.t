#!/bin/sh

test_description='flux module: a scheduler is loaded, removed, refused beside another

By name from the path, and by path: the first scheduler that the guide has the reader type. Modules that cannot be loaded:
t/python/broker/test_modules.py.
'

. "$(dirname "$0")/sharness.sh"

test_under_flux 2 job

is_loaded() {
	flux module list | awk "\$1 == \"$1\" && \$3 == \"R\"" | grep -q .
}

test_expect_success 'a second scheduler is refused while one is there' '
	test_must_fail flux module load sched-fifo 2>err &&
	grep "load sched-fifo: File exists" err &&
	is_loaded sched-simple
'
test_expect_success 'sched-simple makes way for sched-fifo' '
	flux module remove sched-simple &&
	flux module load sched-fifo &&
	is_loaded sched-fifo &&
	flux module list | grep "^sched-fifo .*feasibility,sched"
'
test_expect_success 'removed, it leaves no service behind' '
	flux module remove sched-fifo &&
	test_must_fail is_loaded sched-fifo &&
	test_must_fail flux module stats sched-fifo 2>err &&
	grep "No service matching" err
'
test_expect_success 'jobs wait while there is no scheduler, and run when one comes' '
	id=$(flux submit -n1 true) &&
	flux queue status | grep "Scheduler is offline" &&
	flux module load sched-backfill &&
	flux job wait-event --timeout=120 $id clean &&
	flux module remove sched-backfill
'

# The policy that the README and the guide begin with.
cp "$FLUX_SOURCE_DIR/doc/examples/first.py" my-sched.py

test_expect_success 'the scheduler of the guide is loaded by its path' '
	flux module load ./my-sched.py &&
	is_loaded my-sched
'
test_expect_success 'it schedules jobs' '
	run_timeout 120 flux run -n2 echo hello >out &&
	test $(grep -c hello out) = 2 &&
	flux submit --quiet --wait --cc=1-8 -n1 true
'
test_expect_success 'it is removed by its path' '
	flux module remove ./my-sched.py &&
	test_must_fail is_loaded my-sched &&
	flux module load sched-simple
'

test_done
