#!/bin/sh

test_description='Nothing is written outside the source tree and the run directory: not to the home of the user'

. "$(dirname "$0")/sharness.sh"

mkdir home tmp
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/fh.XXXXXX") && export TMPDIR
cleanup "rm -rf '$TMPDIR'"
HOME=$PWD/home && export HOME
unset XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME

nothing_written() {
	find home "$TMPDIR" -mindepth 1 >written &&
	test_must_be_empty written
}

test_expect_success 'an instance with jobs, modules and commands' '
	flux start -s2 "flux module reload sched-simple; flux run -n2 true; flux jobs -a; flux resource list" &&
	nothing_written
'
test_expect_success 'flux python' '
	flux start flux python -c "import flux; print(flux.Flux().get_rank())" &&
	nothing_written
'

if test -f "$FLUX_SOURCE_DIR/.venv/.complete-requirements" && test -z "$REAL_FLUX$FLUX_TEST_INSTALLED_PATH"; then
	test_set_prereq VENV
fi
test_expect_success VENV 'the quickstart shows jobs of every kind' '
	run_timeout 400 "$FLUX_SOURCE_DIR/scripts/quickstart" >quickstart.out 2>&1 || { cat quickstart.out; false; } &&
	grep "sched-fifo" quickstart.out &&
	grep "impossible  *F " quickstart.out &&
	grep "unwanted  *CA " quickstart.out &&
	grep "whole-mac.*  *CD  *8  *8 .*fake\[0-7\]" quickstart.out &&
	grep "needs 8 nodes" quickstart.out &&
	grep "62 of 62 jobs done" quickstart.out &&
	grep "^it is " quickstart.out &&
	grep "100 core" quickstart.out &&
	grep "\"pending_jobs\": 0" quickstart.out
'
test_expect_success VENV 'and writes nothing' '
	nothing_written
'

test_done
