#!/bin/sh

test_description='jobtap plugins that do in their callbacks what none should: t/campaign/plugins.py'

. "$(dirname "$0")/sharness.sh"
. "$SHARNESS_TEST_SRCDIR/jobtap/lib.sh"
test_under_flux 1 job
CAMPAIGN_FLUX=$(command -v flux)
export CAMPAIGN_FLUX

test_expect_success 'the job manager lives, the log names file and line, no job is in limbo' '
	flux python "$SHARNESS_TEST_SRCDIR/campaign/plugins.py" --seed=1
'
test_done
