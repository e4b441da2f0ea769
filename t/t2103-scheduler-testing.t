#!/bin/sh
test_description='flux.scheduler.testing: schedulers without an instance, on the bindings of this host'

. "$(dirname "$0")/sharness.sh"

# The first test of the guide, in a file as its reader writes it, run as pytest would.
cp "$FLUX_SOURCE_DIR/doc/examples/first.py" my-sched.py
awk '/^\.\. code-block:: python/ { inside = 1; next } /^[^ ]/ { if (inside) exit } inside' \
	"$FLUX_SOURCE_DIR/doc/guide/first-test.rst" | sed 's/^    //' >test_my_sched.py
echo 'test_jobs_start_in_order()' >>test_my_sched.py

test_expect_success 'the first test of the guide passes' '
	grep FakeInstance test_my_sched.py &&
	flux python test_my_sched.py
'
test_expect_success 'it fails under another policy' '
	sed "s/self._queue\[0\]/self._queue[-1]/" my-sched.py >other.py && mv other.py my-sched.py &&
	test_must_fail flux python test_my_sched.py 2>err &&
	grep -E "AssertionError|SchedulerErrors" err
'

test_done
