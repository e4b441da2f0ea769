#!/bin/sh

test_description='flux-core'\''s own tests of jobtap, with Python twins of its compiled test plugins'

. "$(dirname "$0")/sharness.sh"
test -n "$REAL_FLUX" || { skip_all="no real Flux"; test_done; }
. "$SHARNESS_TEST_SRCDIR/jobtap/lib.sh"

# The script is part of flux-core's source tree: FLUX_CORE_SOURCE, or beside the installation.
core=${FLUX_CORE_SOURCE:-$(dirname "$(dirname "$REAL_FLUX")")/src}/t
script=t2212-job-manager-plugins.t
test -f "$core/$script" || { skip_all="no source tree of flux-core: name one with FLUX_CORE_SOURCE"; test_done; }
twins=${JOBTAP_TWINS:-$SHARNESS_TEST_SRCDIR/jobtap}

test_expect_success 'make links to python.so beside the twins' '
	mkdir twins && for file in "$twins"/*.py; do
	    cp "$file" twins/ && ln -s "$FLUX_JOBTAP_PYTHON" "twins/$(basename "$file" .py).so" || return 1
	done
'
test_expect_success 'take the script, with another plugin path and nothing else changed' '
	mkdir t && for file in "$core"/*; do
	    case ${file##*/} in trash* | *.log | *.output | $script) ;; *) ln -s "$file" t/ ;; esac || return 1
	done &&
	sed "s|^PLUGINPATH=.*|PLUGINPATH=$(pwd)/twins|" "$core/$script" >t/$script &&
	test $(diff "$core/$script" t/$script | grep -c "^>") = 1
'
unset_sharness() {
	for name in $(env | sed -n "s/^\(SHARNESS[A-Z_]*\|TEST_[A-Z_]*\)=.*/\1/p"); do unset $name; done
}
test_expect_success 'all of its tests pass' '
	( unset_sharness; FLUX_EXEC_PATH_PREPEND= FLUX_PYTHONPATH_PREPEND= FLUX_MODULE_PATH_PREPEND= \
	    FLUX_SOURCE_DIR=${core%/t} FLUX_BUILD_DIR=${core%/t} FLUX_TEST_INSTALLED_PATH=$(dirname "$REAL_FLUX") \
	    sh t/$script --root=$(pwd) ) >out 2>&1
	grep "^not ok" out; tail -n 2 out
	grep "^# passed all 72 test" out
'
test_done
