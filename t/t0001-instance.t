#!/bin/sh

test_description='flux start: an instance begins, runs a command, ends

Exit codes, signals and leftovers: t/python/broker/test_start.py.
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
test_expect_success 'a job runs from submission to its end' '
	flux start -s2 flux run -n2 echo hello >actual &&
	printf "hello\nhello\n" >expected &&
	test_cmp expected actual
'

# Socket paths are short: its TMPDIR cannot lie below this directory.
test_expect_success 'a batch job that is cancelled leaves no file behind' '
	batchtmp=$(mktemp -d) &&
	cat >cancelled.sh <<-\EOF &&
	id=$(flux batch -n1 --output=none --wrap sleep inf) &&
	flux job wait-event -t 120 $id memo &&
	flux cancel $id &&
	flux job wait-event -t 120 -q $id clean
	EOF
	TMPDIR=$batchtmp flux start -s2 sh cancelled.sh &&
	rmdir $batchtmp
'

test_done
