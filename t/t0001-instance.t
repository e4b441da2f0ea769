#!/bin/sh

test_description='flux start: an instance begins, runs a command, ends

Exit codes, signals, and what is left behind: t/python/broker/test_start.py.
'

. "$(dirname "$0")/sharness.sh"

# Short: it holds the instance's sockets.
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/ft.XXXXXX") && export TMPDIR
cleanup "rm -rf '$TMPDIR'"

test_expect_success '--test-size sets the number of brokers' '
	echo 3 >expected &&
	flux start --test-size=3 flux getattr size >actual &&
	test_cmp expected actual
'
test_expect_success 'configuration and attributes of the command line arrive' '
	echo true >expected &&
	flux start --conf=resource.noverify=true flux config get resource.noverify >actual &&
	test_cmp expected actual &&
	test_expect_code 1 flux start -Sfoo=bar true 2>err &&
	grep "foo: unknown attribute" err
'
test_flux_since 86 && test_set_prereq FAKE_RESOURCES
test_expect_success FAKE_RESOURCES 'invented resources' '
	flux start --conf=fake-resources.nnodes=4 --conf=fake-resources.cores-per-node=8 \
		--conf=fake-resources.gpus-per-node=2 flux resource list >list &&
	grep "free *4 *32 *8 fake\[0-3\]" list
'
test_expect_success 'a job runs from submission to its end' '
	flux start -s2 flux run -n2 echo hello >actual &&
	printf "hello\nhello\n" >expected &&
	test_cmp expected actual
'
test_expect_success 'without an instance commands say so' '
	test_expect_code 1 flux getattr size 2>err &&
	grep -E "flux_open: No such file|Unable to connect to Flux" err &&
	test_expect_code 1 flux resource list 2>err &&
	grep "Unable to connect to Flux" err
'
test_expect_success 'two instances at a time do not meet' '
	flux start "flux kvs put a=1; flux start flux kvs get a" 2>err
	test $? -ne 0 &&
	grep "a: No such file or directory" err
'

# Socket paths are short: its TMPDIR cannot lie below this directory.
test_expect_success 'a batch job that is cancelled leaves no file behind' '
	batchtmp=$(mktemp -d) &&
	cat >cancelled.sh <<-\EOF &&
	id=$(flux batch -n1 --output=none --wrap sleep 100) &&
	flux job wait-event -t 20 $id memo &&
	flux cancel $id &&
	flux job wait-event -t 20 -q $id clean
	EOF
	TMPDIR=$batchtmp flux start -s2 sh cancelled.sh &&
	rmdir $batchtmp
'

test_done
