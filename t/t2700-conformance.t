#!/bin/sh

test_description='the conformance kit: a scheduler of this project passes, and each of twelve planted defects is found

Only one module goes through all cases here; doc/reference/conformance.rst has the results of others.
'

. "$(dirname "$0")/sharness.sh"

conformance() {
	"$SHARNESS_TEST_SRCDIR/conformance/conformance" --flux "$(command -v flux)" "$@"
}
flawed=$SHARNESS_TEST_SRCDIR/conformance/flawed.py
# A case that fails waits this long for an answer before it says so.
CONFORMANCE_PATIENCE=${CONFORMANCE_PATIENCE:-20} && export CONFORMANCE_PATIENCE

test_expect_success 'sched-backfill passes all cases' '
	run_timeout 580 conformance --module "${FLUX_SOURCE_DIR:+$FLUX_SOURCE_DIR/src/modules/sched-backfill/}sched-backfill${FLUX_SOURCE_DIR:+.py}" >out 2>err ||
		{ cat out; tail -n 20 err; false; }
	tail -n 1 out | grep " pass, 0 fail, 0 without"
'
flux python -c "
import sys
sys.path.insert(0, '$SHARNESS_TEST_SRCDIR/conformance')
import flawed
print(*(' '.join(pair) for pair in flawed.DEFECTS.items()), sep='\n')" >defects

test_expect_success 'the small scheduler without a defect passes the cases that are to find them' '
	test $(wc -l <defects) = 12 &&
	conformance --module "$flawed" $(sed "s/.* /--case /" defects) >right 2>err || { cat right; tail -n 20 err; false; }
	grep "^12 pass, 0 fail" right
'
while read -r defect case; do
	test_expect_success "found: $defect" '
		test_must_fail conformance --module "$flawed" --args '"$defect"' --case '"$case"' >found 2>err &&
		cat found && grep "^fail  *'"$case"'" found && grep "^0 pass, 1 fail" found
	'
done <defects
test_done
