#!/bin/sh

test_description='the additions of sharness.sh to the library: the tests rely on them

Nothing here needs an instance.
'

. "$(dirname "$0")/sharness.sh"

test_expect_success 'run_timeout: the exit code of the command, 137 when it takes too long' '
	test_expect_code 3 run_timeout 10 sh -c "exit 3" &&
	test_expect_code 137 run_timeout 0.2 sleep 30
'
test_expect_success 'test_wait_until: succeeds as soon as the command does' '
	(sleep 0.3; touch later) &
	test_wait_until -s 0.05 "test -f later"
'
test_expect_success 'test_wait_until: gives up' '
	test_expect_code 1 test_wait_until -i 3 -s 0.01 "test -f never"
'
test_expect_success 'test_wait_until: -v tells each try' '
	test_must_fail test_wait_until -i 2 -s 0.01 -v false 2>tries &&
	grep "gave up after 2 tries: false" tries
'
test_expect_success 'test_must_fail_or_be_terminated' '
	test_must_fail_or_be_terminated false &&
	test_must_fail_or_be_terminated sh -c "kill -15 \$\$" &&
	test_expect_code 1 test_must_fail_or_be_terminated true &&
	test_expect_code 1 test_must_fail_or_be_terminated sh -c "kill -9 \$\$"
'
test_expect_success 'test_columns_variable_preserved' '
	test_columns_variable_preserved sh -c "echo \$COLUMNS" &&
	test_expect_code 1 test_columns_variable_preserved echo 80
'
test_expect_success 'the trash directory has no space in its name, and is the home directory' '
	case $SHARNESS_TRASH_DIRECTORY in *" "*) false ;; esac &&
	test "$PWD" = "$SHARNESS_TRASH_DIRECTORY" &&
	test "$HOME" = "$SHARNESS_TRASH_DIRECTORY"
'
test_expect_success 'the environment is that of any machine' '
	test "$LC_ALL,$TZ" = C,UTC &&
	test "$XDG_CONFIG_HOME" = /noexist &&
	test -d "$REAL_HOME" &&
	command -v flux
'

cat >inner.t <<'EOF'
#!/bin/sh
test_description="three tests, the second fails"
. "$OUTER/sharness.sh"
test_expect_success one true
test_expect_success two false
test_expect_success three true
test_done
EOF

# The copy runs with a build directory of its own, so that its files stay in this trash directory.
test_expect_success 'a script with the options of sharness.sh: --run and --logfile' '
	mkdir -p b/t src/t && cp inner.t src/t/inner.t &&
	cp -R "$SHARNESS_TEST_SRCDIR/sharness.sh" "$SHARNESS_TEST_SRCDIR/sharness.d" src/t/ &&
	OUTER=$PWD/src/t && export OUTER &&
	FLUX_BUILD_DIR=$PWD/b && export FLUX_BUILD_DIR &&
	sh src/t/inner.t --run=1,3 >run.out &&
	grep -q "^ok 2 # skip" run.out &&
	test_expect_code 1 sh src/t/inner.t --logfile >log.out &&
	grep -q "^not ok 2 - two" b/t/inner.output &&
	grep -q "expecting success: false" b/t/inner.output
'

test_done
