#!/bin/sh

test_description='the conformance kit: a scheduler of this project passes, and each of thirteen planted defects is found

Only one module goes through all cases here; doc/reference/conformance.rst has the results of others.
'

. "$(dirname "$0")/sharness.sh"

conformance=$SHARNESS_TEST_SRCDIR/conformance/conformance
flawed=$SHARNESS_TEST_SRCDIR/conformance/flawed.py
backfill=sched-backfill
test -z "$FLUX_SOURCE_DIR" || backfill=$FLUX_SOURCE_DIR/src/modules/sched-backfill/sched-backfill.py

# A case that fails waits so long for an answer before it says so; one that passes does not wait for it.
test_expect_success 'sched-backfill passes all cases' '
	{ CONFORMANCE_PATIENCE=30 CONFORMANCE_SILENCE=0.1 run_timeout 550 "$conformance" --flux "$(command -v flux)" --module "$backfill" >out 2>err ||
		{ cat out; tail -n 20 err; false; }; } &&
	tail -n 1 out | grep " pass, 0 fail, 0 without"
'
if test -n "$REAL_FLUX"; then
	# The rest tests the kit, which is the same on both hosts.
	test_done
fi
flux python -c "
import sys
sys.path.insert(0, '$SHARNESS_TEST_SRCDIR/conformance')
import flawed
print(*(' '.join(pair) for pair in flawed.DEFECTS.items()), sep='\n')" >defects

test_expect_success 'the small scheduler without a defect passes the cases that are to find them' '
	test $(wc -l <defects) = 13 &&
	{ CONFORMANCE_PATIENCE=30 CONFORMANCE_SILENCE=0.1 "$conformance" --flux "$(command -v flux)" --module "$flawed" $(sed "s/.* /--case /" defects) >right 2>err ||
		{ cat right; tail -n 20 err; false; }; } &&
	grep "^13 pass, 0 fail" right
'
test_expect_success 'each of thirteen planted defects is tried' '
	test_must_fail env CONFORMANCE_PATIENCE=1.5 CONFORMANCE_SILENCE=0.1 "$conformance" --flux "$(command -v flux)" --module "$flawed" \
		$(sed "s/\(.*\) \(.*\)/--case \2:\1/" defects) >found 2>err &&
	cat found
'
while read -r defect case; do
	test_expect_success "found: $defect" '
		grep "^fail  *'"$case"' " found
	'
done <defects
test_done
