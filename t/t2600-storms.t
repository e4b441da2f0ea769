#!/bin/sh

test_description='storms over a running instance, short: t/campaign/storms.py says how to run long ones'

. "$(dirname "$0")/sharness.sh"
TEST_UNDER_FLUX_CORES_PER_RANK=4
export TEST_UNDER_FLUX_CORES_PER_RANK
# Of a real Flux the broker outlives a module that is killed only if it is told to.
if test -n "$REAL_FLUX"; then
    test_under_flux 1 job -Sbroker.module-nopanic=1
else
    test_under_flux 1 job
fi

CAMPAIGN_FLUX=$(command -v flux)
export CAMPAIGN_FLUX
storm() {
    flux python "$SHARNESS_TEST_SRCDIR/campaign/storms.py" --pause=0.3 "$@"
}

test_expect_success 'the scheduler is reloaded, and changed for another' '
	storm --seed=1 --seconds=6 --jobs=60 --acts=reload,switch
'
test_expect_success REAL_FLUX 'the process of its module is stopped and killed' '
	storm --seed=2 --seconds=6 --jobs=60 --acts=kill,stop
'
test_expect_success 'nodes, queues, bad configurations, cancellations, limits' '
	storm --seed=3 --seconds=8 --jobs=60 --acts=drain,undrain,queue,config,cancel,expiration,submit
'
test_done
