#!/bin/sh

test_description='the same plugin and the same jobs give the same eventlogs on either host'

. "$(dirname "$0")/sharness.sh"
. "$SHARNESS_TEST_SRCDIR/jobtap/lib.sh"
test_under_flux 2 job

# The hosts may differ in times, the annotations of the scheduler and the owner's userid.
eventlog() {
	flux job wait-event -t 120 $1 clean >/dev/null &&
	flux job eventlog $1 | sed -e "s/^[0-9.]* //" -e "s/ annotations={.*}//" -e "s/userid=[0-9]*/userid=ME/"
}
rpc() { flux python -c "import flux, json, sys; print(flux.Flux().rpc(sys.argv[1], json.loads(sys.argv[2])).get())" "$@"; }
both() { test_cmp "$SHARNESS_TEST_SRCDIR/jobtap/same/$1" $1; }

test_expect_success 'load the plugin' '
	cp "$SHARNESS_TEST_SRCDIR/jobtap/same.py" . && flux jobtap load same.py
'
for mode in plain flag depend bad-priority priority update raise cancel answers; do
	test_expect_success "a job of mode $mode" '
		id=$(flux submit --setattr=mode=$mode true) &&
		if test $mode = bad-priority; then flux job wait-event -t 120 $id exception && flux cancel $id; fi &&
		eventlog $id >$mode && both $mode
	'
done
test_expect_success 'a rejected job' '
	test_must_fail flux submit --setattr=mode=reject true 2>err && grep "not this one" err
'
test_expect_success 'a dependency, and the state of the job on its removal' '
	id=$(flux submit --dependency=gate:x true) && flux job wait-event -t 120 $id dependency-add &&
	flux jobtap load -r same.py same.py &&
	rpc job-manager.same.open "{\"id\": $(flux job id $id), \"description\": \"gate=x\"}" >out &&
	grep "8" out && eventlog $id >gate && both gate
'
test_expect_success 'updates by request and by a service' '
	id=$(flux submit --urgency=hold true) &&
	flux update $id same=yes &&
	test_must_fail flux update $id same=no 2>err && grep "update rejected by job-manager plugin .same.py." err &&
	test_must_fail flux update $id other=1 &&
	rpc job-manager.same.rename "{\"id\": $(flux job id $id)}" &&
	flux job urgency $id default && eventlog $id >updated && both updated
'
test_expect_success 'the other functions, and calls that are refused' '
	cp "$SHARNESS_TEST_SRCDIR/jobtap/api.py" . && flux jobtap load api.py &&
	id=$(flux submit --setattr=mode=api true) && flux job wait-event -t 120 $id depend &&
	rpc job-manager.api.release "{\"id\": $(flux job id $id)}" && eventlog $id >api && both api &&
	test_wait_until "flux dmesg | grep \"api: value freed\"" && flux jobtap remove api.$so
'
test_expect_success 'a canceled job' '
	id=$(flux submit --urgency=hold true) && flux cancel $id && eventlog $id >canceled && both canceled
'
test_expect_success 'a fatal exception in job.state.run: the job starts all the same' '
	id=$(flux submit --setattr=mode=stop --setattr=exec.test.run_duration=0.1s true) &&
	eventlog $id | sed "s/finish status=.*/finish/" >stop && both stop
'
test_expect_success 'a query answers with any keys; the log has the reason of one that fails' '
	flux jobtap query same.$so | jq -e ".validated == \"yes\" and .annotations == \"none\"" &&
	flux jobtap load -r same.$so same.py mute=1 && test_must_fail flux jobtap query same.$so &&
	flux dmesg | grep "same.py: plugin.query: nothing to tell (same.py:"
'
test_expect_success 'a failed job' '
	id=$(flux submit false) && eventlog $id >failed && both failed
'
test_done
