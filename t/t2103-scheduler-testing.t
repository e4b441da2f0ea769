#!/bin/sh
test_description='flux.scheduler.testing: schedulers without an instance, on the bindings of this host'

. "$(dirname "$0")/sharness.sh"

# The first test of the guide, in a file as its reader writes it, with what pytest would do.
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
cat >all.py <<'EOF'
from flux.scheduler.testing import FakeInstance

for name in "sched-fifo", "sched-simple", "sched-backfill":
    instance = FakeInstance(nodes=4, cores=8)
    scheduler = instance.load(name)
    assert scheduler.name == name
    first = instance.submit(nodes=3, cores=8, duration=3600)
    blocked = instance.submit(nodes=4, cores=8, duration=600)
    instance.advance(1)
    assert blocked.t_estimate == first.t_start + 3600, blocked
    entry = {"name": "dat", "start": instance.now() + 9000, "duration": 50, "nodes": 4}
    instance.request("sched.reserve", {"reservation": entry})
    instance.unload()
    instance.load(name)
    (reservation,) = instance.request("sched.reservations")["reservations"]
    assert reservation["name"] == "dat"
    instance.remove_ranks("3")
    instance.advance(3600)
    assert "3 eligible" in (blocked.note or ""), blocked
    assert instance.scheduler.stats_get()["pending_jobs"] == 0
    assert instance.request(f"{name}.stats-get")["errors"] == 0
    instance.scheduler.stop()
    assert not instance.is_loaded
    print(name)
EOF
test_expect_success 'each scheduler runs in a fake instance' '
	flux python all.py >out &&
	printf "sched-fifo\nsched-simple\nsched-backfill\n" >expected &&
	test_cmp expected out
'

test_done
