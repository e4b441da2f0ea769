#!/bin/sh
# Test scripts (t/*.t, and those of a site) begin with this file: Debian's sharness, with additions for tests of a Flux instance.
#
#   test_description='...'
#   . "$(dirname "$0")/sharness.sh"          (in a site's own: . /usr/local/lib/flux-scheduler/test/sharness.sh)
#   test_under_flux 4 job
#
# The script then runs inside an instance: the embedded one, or a real Flux when configure was told of one.

SHARNESS_TEST_SRCDIR=$(cd "$(dirname "$0")" && pwd)
# Where this file, rc/ and sharness.d/ are; a script cannot tell where a file that it reads lies. make install fills it in.
installed='@TESTLIBDIR@'
REAL_FLUX= SHARNESS= TEST_PYTHON=
case $installed in
@*)
    test -f "$SHARNESS_TEST_SRCDIR/sharness.sh" && FLUX_TEST_LIB=$SHARNESS_TEST_SRCDIR
    FLUX_SOURCE_DIR=${FLUX_TEST_LIB%/*}
    FLUX_BUILD_DIR=${FLUX_BUILD_DIR:-$FLUX_SOURCE_DIR}
    test_config=$FLUX_BUILD_DIR/t/config.sh
    SHARNESS_TEST_DIRECTORY=$FLUX_BUILD_DIR/t
    test_source=$FLUX_SOURCE_DIR/src
    # Not configured yet: the embedded instance runs from the source tree as it is.
    test -f "$test_config" && . "$test_config"
    export FLUX_SOURCE_DIR FLUX_BUILD_DIR
    ;;
*)
    FLUX_TEST_LIB=$installed
    SHARNESS_TEST_DIRECTORY=${SHARNESS_TEST_DIRECTORY:-$PWD}
    test_source=${FLUX_TEST_LIB%/*}
    . "$FLUX_TEST_LIB/config.sh"
    ;;
esac
test -f "$SHARNESS" || SHARNESS=/usr/share/sharness/sharness.sh
test -f "$SHARNESS" || { echo "1..0 # SKIP no sharness library: install the package sharness"; exit 0; }
export SHARNESS_TEST_SRCDIR SHARNESS_TEST_DIRECTORY FLUX_TEST_LIB REAL_FLUX
mkdir -p "$SHARNESS_TEST_DIRECTORY"

TEST_NAME=$(basename "$0" .t)
export TEST_NAME
test_file=$SHARNESS_TEST_SRCDIR/$(basename "$0")

#
# Options that the library does not have:
#   --logfile    everything that is printed goes to TESTNAME.output as well, verbosely
#   --run=LIST   only the tests of LIST (2,4-6)
#
test_arguments=
for argument; do
    shift
    case $argument in
    --logfile) test_logfile=t ;;
    --run=*) test_run_list=${argument#*=} ;;
    *) set -- "$@" "$argument" ;;
    esac
done
if test -n "$test_logfile" && test -z "$TEST_LOGFILE_ACTIVE"; then
    TEST_LOGFILE_ACTIVE=t
    export TEST_LOGFILE_ACTIVE
    test_output=$SHARNESS_TEST_DIRECTORY/$TEST_NAME.output
    # The script's own exit code, not tee's.
    { { sh "$test_file" -v "$@" ${test_run_list:+--run="$test_run_list"} 2>&1; echo $? >"$test_output.rc"; } |
        tee "$test_output"; }
    test_rc=$(cat "$test_output.rc")
    rm -f "$test_output.rc"
    exit "$test_rc"
fi
if test -n "$test_run_list"; then
    # The library can leave out tests, so all numbers that are not in the list are left out.
    SKIP_TESTS="$SKIP_TESTS $(awk -v list="$test_run_list" -v name="$TEST_NAME" 'BEGIN {
        n = split(list, part, ",")
        for (i = 1; i <= n; i++) {
            if (split(part[i], ends, "-") < 2) ends[2] = ends[1]
            for (j = ends[1] + 0; j <= ends[2] + 0; j++) wanted[j] = 1
        }
        for (j = 1; j < 1000; j++) if (!(j in wanted)) printf "%s.%d ", name, j
    }')"
    export SKIP_TESTS
fi

#
# Environment.  The two PREPEND variables survive: they are how an overlay reaches a script.
#
REAL_HOME=${REAL_HOME:-$HOME}
XDG_CONFIG_HOME=/noexist
export REAL_HOME XDG_CONFIG_HOME
if test -z "$TEST_UNDER_FLUX_ACTIVE"; then
    unset FLUX_CONFIG FLUX_MODULE_PATH FLUX_SHELL_RC_PATH FLUX_RC_EXTRA FLUX_CONF_DIR FLUX_F58_FORCE_ASCII FLUX_MODPROBE_PATH
    unset FLUX_JOBS_FORMAT_DEFAULT FLUX_RESOURCE_LIST_FORMAT_DEFAULT FLUX_RESOURCE_STATUS_FORMAT_DEFAULT FLUX_URI
    for variable in $(env | sed -n 's/^\(PMI[A-Z0-9_]*\|SLURM[A-Z0-9_]*\)=.*/\1/p'); do
        unset "$variable"
    done
fi

test_path=$FLUX_TEST_LIB/scripts
if test -n "$FLUX_TEST_INSTALLED_PATH"; then
    test_path=$FLUX_TEST_INSTALLED_PATH:$test_path
elif test -n "$REAL_FLUX"; then
    test_path=$(dirname "$REAL_FLUX"):$test_path
    FLUX_PYTHONPATH_PREPEND=$test_source/bindings/python${FLUX_PYTHONPATH_PREPEND:+:$FLUX_PYTHONPATH_PREPEND}
    for directory in "$test_source"/modules/sched-*; do
        FLUX_MODULE_PATH_PREPEND=$directory${FLUX_MODULE_PATH_PREPEND:+:$FLUX_MODULE_PATH_PREPEND}
    done
    # flux sched; of this directory a real Flux takes the files named flux-NAME.py.
    FLUX_EXEC_PATH_PREPEND=$test_source/cmd${FLUX_EXEC_PATH_PREPEND:+:$FLUX_EXEC_PATH_PREPEND}
    export FLUX_PYTHONPATH_PREPEND FLUX_MODULE_PATH_PREPEND FLUX_EXEC_PATH_PREPEND
else
    test_path=$test_source/cmd:$test_path
    test -z "$FLUX_SCHEDULER_PYTHON" || export FLUX_SCHEDULER_PYTHON
fi
# A build directory of its own has the compiled part, _flux_hwloc.
if test "$FLUX_BUILD_DIR" != "$FLUX_SOURCE_DIR" && test -z "$FLUX_TEST_INSTALLED_PATH$TEST_UNDER_FLUX_ACTIVE"; then
    FLUX_PYTHONPATH_PREPEND=$FLUX_BUILD_DIR/src/bindings/python${FLUX_PYTHONPATH_PREPEND:+:$FLUX_PYTHONPATH_PREPEND}
    export FLUX_PYTHONPATH_PREPEND
fi
# A read-only tree has no place for bytecode, and a fresh checkout must not be told apart by it.
test -w "$test_source" || PYTHONDONTWRITEBYTECODE=1 && export PYTHONDONTWRITEBYTECODE
# A caller's PYTHONPATH (pytest sets one) would be searched by site plugins only; leave it.
test -n "$TEST_UNDER_FLUX_ACTIVE" || { PATH=$test_path:$PATH; export PATH; }

# The library reads sharness.d/ of the directory named here; to a script the name means its own directory.
test_script_directory=$SHARNESS_TEST_SRCDIR
SHARNESS_TEST_SRCDIR=$FLUX_TEST_LIB
. "$SHARNESS"
SHARNESS_TEST_SRCDIR=$test_script_directory

test -n "$REAL_FLUX" && test_set_prereq REAL_FLUX || test_set_prereq EMBEDDED

# test_flux_since MINOR: whether the host has the features of flux-core 0.MINOR; the embedded instance has.
test_flux_since() {
    test -z "$REAL_FLUX" && return 0
    test_flux_minor=$(flux version | sed -n 's/^commands:[[:space:]]*0\.\([0-9]*\).*/\1/p')
    test -z "$test_flux_minor" || test "$test_flux_minor" -ge "$1"
}

#
# test_under_flux SIZE [PERSONALITY] [OPTION of flux start ...]
#
# Start the script again inside an instance of SIZE brokers.  Personalities: minimal (no modules), kvs, job (invented
# resources: TEST_UNDER_FLUX_CORES_PER_RANK, 2, and TEST_UNDER_FLUX_GPUS_PER_RANK, 0, on each rank; sched-simple),
# full (the host's own rc1; the default), system (here as full).  The broker's log is TESTNAME.broker.log.
#
test_under_flux() {
    test_size=${1:?test_under_flux: SIZE is missing}
    test_personality=${2:-full}
    test $# -gt 1 && shift 2 || shift
    if test -n "$TEST_UNDER_FLUX_ACTIVE"; then
        test "$TEST_UNDER_FLUX_ACTIVE" = "$test_file" || error "an instance of another script is around this one"
        return 0
    fi
    case $test_personality in
    minimal) set -- -Sbroker.rc1_path= -Sbroker.rc3_path= "$@" ;;
    kvs | job)
        set -- "-Sbroker.rc1_path=flux modprobe run '$FLUX_TEST_LIB/rc/rc1-$test_personality.py'" \
            "-Sbroker.rc3_path=flux modprobe run '$FLUX_TEST_LIB/rc/rc3.py'" "$@"
        ;;
    full | system) ;;
    *) error "test_under_flux: personality '$test_personality': expected minimal, kvs, job, full or system" ;;
    esac
    test_log=$SHARNESS_TEST_DIRECTORY/$TEST_NAME.broker.log
    rm -f "$test_log"
    TEST_UNDER_FLUX_ACTIVE=$test_file
    TEST_UNDER_FLUX_SIZE=$test_size
    TEST_UNDER_FLUX_PERSONALITY=$test_personality
    export TEST_UNDER_FLUX_ACTIVE TEST_UNDER_FLUX_SIZE TEST_UNDER_FLUX_PERSONALITY
    # The trash directory is made anew by the script inside: the instance must not stand in it.
    cd "$SHARNESS_TEST_DIRECTORY" && rm -rf "$SHARNESS_TRASH_DIRECTORY"
    HOME=$REAL_HOME
    exec flux start --test-size="$test_size" -Slog-filename="$test_log" -Slog-forward-level=7 "$@" \
        sh "$test_file" ${verbose:+-v} ${debug:+-d} ${immediate:+-i} ${chain_lint:+--chain-lint} ${root:+--root="$root"}
}

# Kill a command that takes longer than SEC seconds; the exit code is then 137.
run_timeout() {
    run_timeout_seconds=$1
    shift
    timeout -s KILL "$run_timeout_seconds" "$@"
}

# test_wait_until [-i N] [-s SEC] [-v] "CMD": try CMD N times (600), SEC seconds apart (0.1); 0 as soon as it
# succeeds. Only a test that fails waits that long.
test_wait_until() {
    wait_tries=600 wait_pause=0.1 wait_verbose=
    while :; do
        case $1 in
        -i) wait_tries=$2; shift 2 ;;
        -s) wait_pause=$2; shift 2 ;;
        -v) wait_verbose=t; shift ;;
        *) break ;;
        esac
    done
    wait_count=0
    while test $wait_count -lt "$wait_tries"; do
        wait_count=$((wait_count + 1))
        test -z "$wait_verbose" || echo >&2 "test_wait_until: $wait_count: $*"
        eval "$*" && return 0
        sleep "$wait_pause"
    done
    test -z "$wait_verbose" || echo >&2 "test_wait_until: gave up after $wait_tries tries: $*"
    return 1
}

# A size for tests that want many brokers: FLUX_TEST_SIZE_MAX at most.
test_size_large() {
    test_size_is=8
    test "${FLUX_TEST_SIZE_MAX:-$test_size_is}" -ge $test_size_is || test_size_is=$FLUX_TEST_SIZE_MAX
    echo $test_size_is
}

# Any failure will do, death by SIGTERM too.
test_must_fail_or_be_terminated() {
    "$@"
    exit_code=$?
    case $exit_code in
    0) echo >&2 "test_must_fail_or_be_terminated: command succeeded: $*"; return 1 ;;
    143) return 0 ;;
    127) echo >&2 "test_must_fail_or_be_terminated: command not found: $*"; return 1 ;;
    esac
    test $exit_code -lt 130 || test $exit_code -gt 192
}

# A command that prints COLUMNS columns.
test_columns_variable_preserved() {
    for columns in 12 345; do
        test "$(COLUMNS=$columns "$@")" = $columns || return 1
    done
}
