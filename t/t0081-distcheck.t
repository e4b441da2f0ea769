#!/bin/sh

test_description='make distcheck: a release builds, passes its tests, installs and cleans up, from a read-only source

It runs without the recorded data; the tests that need that skip.
'

. "$(dirname "$0")/sharness.sh"

# What is built here takes flux-python from the tree, not from the package index.
FLUX_PYTHON_COPY=$FLUX_SOURCE_DIR/.cache/flux-python && export FLUX_PYTHON_COPY

missing=
for tool in autoreconf automake make xz; do
	command -v $tool >/dev/null || missing="$missing $tool"
done
if test -n "$missing$REAL_FLUX$FLUX_TEST_INSTALLED_PATH"; then
	skip_all="distcheck is for the embedded instance in its tree${missing:+, and takes$missing}"
	test_done
fi
PYTHON=${FLUX_SCHEDULER_PYTHON:-$FLUX_SOURCE_DIR/.venv/bin/python}
test -x "$PYTHON" || PYTHON=$(command -v python3)
XZ_OPT=-0 && export XZ_OPT  # it is thrown away
unset CHECK_ARGS FLUX_BUILD_DIR FLUX_TEST_DATA FLUX_PYTHONPATH_PREPEND FLUX_SCHEDULER_PYTHON MAKEFLAGS MFLAGS MAKELEVEL

test_expect_success 'a copy of the source is configured' '
	mkdir src &&
	"$FLUX_SOURCE_DIR/scripts/manifest" | sort >manifest &&
	tar -cf - -C "$FLUX_SOURCE_DIR" -T manifest | tar -xf - -C src &&
	(cd src && ./autogen.sh && ./configure --with-flux=no PYTHON="$PYTHON") >configure.out 2>&1
'
test_expect_success 'make distcheck' '
	(cd src && run_timeout 550 make distcheck >../distcheck.out 2>&1) || { tail -n 60 distcheck.out; false; }
'
test_expect_success 'the tests ran in it' '
	grep "[1-9][0-9]* passed, 0 failed" distcheck.out
'
test_expect_success 'the release holds the sources, and nothing that was made' '
	tar -tf src/flux-scheduler-*.tar.xz >files &&
	for file in configure README.md LICENSE LICENSE.GPL src/modules/sched-fifo/sched-fifo.py src/cmd/flux t/sharness.sh \
		t/t0001-instance.t t/python/conftest.py scripts/quickstart.jobs doc/index.rst .ci/run; do
		grep -q "/$file\$" files || { echo "missing: $file"; return 1; }
	done &&
	test_must_fail grep -E "__pycache__|\.pyc\$|\.so\$|config\.(log|status)\$|/Makefile\$|trash-directory|/_build/|/\.cache/" files
'
test_expect_success 'an unpacked release holds what the source did, by its own account too' '
	mkdir out && tar -xf src/flux-scheduler-*.tar.xz -C out --strip-components=1 &&
	sed "s,^\./,," manifest | sort >expected &&
	out/scripts/manifest | sed "s,^\./,," | sort >actual &&
	test_cmp expected actual
'

test_done
