#!/bin/sh

test_description='a storm over four brokers, of which one is killed'

. "$(dirname "$0")/sharness.sh"
test -n "$REAL_FLUX" || { skip_all="the embedded instance is one process"; test_done; }
TEST_UNDER_FLUX_CORES_PER_RANK=4
CAMPAIGN_FLUX=$(command -v flux)
export TEST_UNDER_FLUX_CORES_PER_RANK CAMPAIGN_FLUX

# The exit code of the instance is that of the broker that was killed.
test_expect_success 'the allocations of the lost broker end, and no job is in limbo' '
	test_expect_code 137 flux start --test-size=4 -Slog-filename="$(pwd)/broker.log" \
	    "-Sbroker.rc1_path=flux modprobe run $FLUX_TEST_LIB/rc/rc1-job.py" \
	    "-Sbroker.rc3_path=flux modprobe run $FLUX_TEST_LIB/rc/rc3.py" \
	    flux python "$SHARNESS_TEST_SRCDIR/campaign/storms.py" --lose-broker --seed=4 --seconds=3 --jobs=24 --run=4 \
	    --acts=reload >out 2>err &&
	cat out && grep "^seed 4: .*24 jobs, .* allocations checked" out
'
test_done
