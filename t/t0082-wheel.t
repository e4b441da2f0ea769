#!/bin/sh

test_description='pip install: the simulator in a virtual environment, without a Flux

Where the package index cannot be reached this is skipped; t/python/build/test_release.py looks into the wheel without it.
'

. "$(dirname "$0")/sharness.sh"

PYTHON=${TEST_PYTHON:-$FLUX_SOURCE_DIR/.venv/bin/python}
test -x "$PYTHON" || PYTHON=$(command -v python3)
if test -n "$REAL_FLUX$FLUX_TEST_INSTALLED_PATH"; then
	skip_all="a wheel needs no Flux: it is tested once, with the embedded instance in its tree"
	test_done
fi
unset FLUX_BUILD_DIR FLUX_SCHEDULER_BINDINGS FLUX_PYTHONPATH_PREPEND PYTHONPATH PYTHONHOME
PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_CACHE_DIR=$FLUX_SOURCE_DIR/.cache/pip
export PIP_DISABLE_PIP_VERSION_CHECK PIP_NO_INPUT PIP_CACHE_DIR
pinned=$(sed -n 's/^version=\([0-9]\)/\1/p' "$FLUX_SOURCE_DIR/scripts/flux-python")
if ! "$PYTHON" -m venv venv >/dev/null 2>&1; then
	skip_all="$PYTHON makes no virtual environments"
	test_done
fi
if ! venv/bin/python -m pip download -q --retries 0 --timeout 10 --no-deps --only-binary=:all: -d index "flux-python==$pinned" >/dev/null 2>&1; then
	skip_all="no package index that has flux-python $pinned for this Python"
	test_done
fi

test_expect_success 'pip install' '
	run_timeout 300 venv/bin/python -m pip install -q --find-links index "$FLUX_SOURCE_DIR" >pip.out 2>&1 || { cat pip.out; false; }
'
test_expect_success 'flux-simulate runs, with nothing of its environment on the PATH' '
	venv/bin/flux-simulate --version >version &&
	grep "^flux-scheduler [0-9]" version &&
	venv/bin/flux-simulate sample --jobs=50 --scheduler=sched-fifo --scheduler=sched-backfill -o results >out &&
	grep "^sched-backfill" out &&
	test -s results/report.html
'
test_expect_success 'it works from a program' '
	{ echo "import flux_scheduler"; cat "$FLUX_SOURCE_DIR/doc/examples/comparing.py"; } >compare.py &&
	venv/bin/python compare.py >compared &&
	grep "^300 jobs on 64 nodes" compared
'
test_expect_success 'the embedded instance is not in it, and that is said' '
	find venv -name flux_embedded >embedded &&
	test_must_be_empty embedded &&
	test_must_fail venv/bin/flux-simulate sample --jobs=20 --engine=instance -q 2>err &&
	grep "the embedded instance is not installed" err
'
test_expect_success 'a missing flux-python is reported' '
	venv/bin/python -m pip uninstall -q -y flux-python &&
	test_must_fail venv/bin/flux-simulate sample 2>err &&
	grep "the distribution flux-python is missing" err
'
test_expect_success 'pip uninstall leaves nothing' '
	venv/bin/python -m pip uninstall -q -y flux-scheduler &&
	find venv -name "flux_scheduler*" >left &&
	test_must_be_empty left
'
test_done
