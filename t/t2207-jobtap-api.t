#!/bin/sh

test_description='every function and topic of the jobtap interface, by the twins of flux-core'\''s test plugins, on either host'

. "$(dirname "$0")/sharness.sh"
. "$SHARNESS_TEST_SRCDIR/jobtap/lib.sh"
test_under_flux 2 job

twins=$SHARNESS_TEST_SRCDIR/jobtap
event() { flux job wait-event -t 30 "$@"; }
# only NAME ...: these twins are loaded, and no others
only() {
	flux jobtap remove all && for name in "$@"; do flux jobtap load $twins/$name.py || return 1; done
}
rpc() { flux python -c "import flux, json, sys; print(flux.Flux().rpc(sys.argv[1], json.loads(sys.argv[2])).get())" "$@"; }

test_expect_success 'args: what each callback is handed' '
	only args && id=$(flux submit true) && event $id clean &&
	flux job purge --force --num-limit=0 &&
	test_wait_until "flux dmesg | grep -q \"args-check: job.inactive-remove: OK\"" &&
	flux dmesg | sed -n "s/.*args-check: \(.*\): OK/\1/p" | sort -u >actual &&
	for topic in job.create job.validate job.new job.state.depend job.state.priority job.state.sched job.state.run \
	    job.state.cleanup job.state.inactive job.event.start job.event.finish job.inactive-add job.inactive-remove; do
	    grep "^$topic$" actual || return 1
	done
'
test_expect_success 'subscribe and unsubscribe' '
	only subscribe && id=$(flux submit true) && event $id clean &&
	flux dmesg | grep "subscribe-check: job.event.start: OK" &&
	! flux job eventlog $id | grep exception
'
test_expect_success 'data attached to jobs' '
	only job_aux && flux dmesg --clear && id=$(flux submit true) && event $id clean &&
	flux dmesg | grep "test destructor invoked" && flux dmesg --clear &&
	id=$(flux submit --urgency=hold true) && flux jobtap remove all &&
	flux dmesg | grep "test destructor invoked" && flux cancel $id
'
test_expect_success 'functions with arguments good and bad, from every state' '
	only jobtap_api && other=$(flux submit --urgency=hold true) &&
	for options in "" "--setattr=lookup-id=$(flux job id $other)" "--setattr=depend.set_flag=debug" \
	    "--setattr=validate.post-event=e" "--setattr=new.post-event=e" "--setattr=depend.post-event=e" \
	    "--setattr=priority.post-event=e" "--setattr=sched.post-event=e" "--setattr=run.post-event=e" \
	    "--setattr=cleanup.post-event=e"; do
	    id=$(flux submit $options true) && event $id clean && flux job eventlog $id >log &&
	    test_must_fail grep exception log || return 1
	    case $options in *post-event*) grep " e test_context=\"yes\"" log || return 1 ;; esac
	done &&
	id=$(flux submit --setattr=expected-result=failed false) && event $id clean &&
	! flux job eventlog $id | grep type=\"test\" &&
	flux cancel $other && event $other clean && flux job eventlog $other | grep "get_job_result: expected completed, got 4"
'
test_expect_success 'every way to answer' '
	only test &&
	for mode in "priority unset" "callback error" "sched: priority unavail" "sched: update priority" \
	    "sched: dependency-add" "sched: exception error" "annotations error"; do
	    id=$(flux submit --setattr=jobtap.test-mode="\"$mode\"" true) && event $id clean &&
	    test "$(flux jobs -no {annotations.test} $id)" = "$mode" || return 1
	done &&
	id=$(flux submit --setattr=jobtap.test-mode="\"priority type error\"" true) && event $id exception &&
	test "$(flux jobs -no {state} $id)" = PRIORITY && flux cancel $id &&
	for mode in "validate failure:rejected for testing" "validate failure nullmsg:rejected by job-manager plugin" \
	    "validate failure nomsg:rejected by job-manager plugin"; do
	    test_must_fail flux submit --setattr=jobtap.test-mode="\"${mode%%:*}\"" true 2>err &&
	    grep "${mode#*:}" err || return 1
	done
'
test_expect_success 'priority later, by a service' '
	only priority-wait && id=$(flux submit true) && event $id depend &&
	rpc job-manager.priority-wait.release "{\"id\": $(flux job id $id), \"priority\": 42000}" &&
	event --match-context=priority=42000 $id priority && event $id clean
'
test_expect_success 'dependencies, from both callbacks, and known again after a load' '
	only dependency-test &&
	id=$(flux submit --dependency=test:x true) && event $id dependency-add &&
	only dependency-test &&
	rpc job-manager.dependency-test.remove "{\"id\": $(flux job id $id), \"description\": \"x\"}" && event $id clean &&
	id=$(flux submit --setattr=dependency-test=foo true) && event $id dependency-add &&
	rpc job-manager.dependency-test.remove "{\"id\": $(flux job id $id), \"description\": \"foo\"}" && event $id clean
'
test_expect_success 'prolog and epilog, also of a job that never ran' '
	only perilog-test && id=$(flux submit true) && event $id clean &&
	flux job eventlog $id | cut -d" " -f2 | grep -n . >log &&
	grep prolog-finish log && grep epilog-finish log &&
	id=$(flux submit --urgency=hold true) && flux cancel $id && event $id clean &&
	flux job eventlog $id | grep epilog-finish
'
test_expect_success 'job.create posts and rejects' '
	only create-event && id=$(flux submit true) && event $id clean &&
	flux job eventlog $id | sed -n 2p | grep test-event &&
	only create-reject && test_must_fail flux submit true 2>err && grep nope err
'
test_expect_success 'jobspec updates' '
	only jobspec-update && id=$(flux submit --job-name=test true) && event $id clean &&
	flux job eventlog $id >log && grep "jobspec-update.*update-test" log && test_must_fail grep "exception\|run-update" log &&
	id=$(flux submit --urgency=hold true) &&
	rpc job-manager.jobspec-update.update "{\"id\": $(flux job id $id), \"update\": {\"attributes.system.job.name\": \"later\"}}" &&
	flux job eventlog $id | grep "jobspec-update.*later" && flux cancel $id
'
test_expect_success 'configuration' '
	flux jobtap remove all && test_must_fail flux jobtap load $twins/config.py 2>err && grep "Error parsing" err &&
	printf "[testconfig]\ntestkey = \"a\"\n" >good.toml && flux config load good.toml && only config &&
	printf "[testconfig]\ntestkey = 42\n" >bad.toml && test_must_fail flux config load bad.toml 2>err &&
	grep "Error parsing" err
'
test_expect_success 'one plugin calls another' '
	only callee call && id=$(flux submit true) && event $id clean && ! flux job eventlog $id | grep exception
'
test_expect_success 'load order' '
	flux jobtap remove all && flux submit --quiet --cc=1-4 sleep inf && flux submit --quiet --urgency=hold --cc=1-2 true &&
	flux submit --quiet --cc=1-3 --dependency=singleton --job-name=t sleep inf && flux dmesg --clear &&
	for sort in none state -state; do
	    flux jobtap load --remove=all $twins/load-order.py sort=$sort || return 1
	done &&
	! flux dmesg | grep "load-order:" && test_must_fail flux jobtap load --remove=all $twins/load-order.py sort=up &&
	flux cancel --all
'
test_done
