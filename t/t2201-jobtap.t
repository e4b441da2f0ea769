#!/bin/sh

test_description='jobtap plugins in Python: load, list, query, remove'

. "$(dirname "$0")/sharness.sh"
. "$SHARNESS_TEST_SRCDIR/jobtap/lib.sh"
test_under_flux 2 job

test_expect_success 'builtin plugins are hidden' '
	flux jobtap list >list &&
	test_must_be_empty list &&
	flux jobtap list -a >list &&
	grep "^.priority-default$" list &&
	test $(wc -l <list) -gt 8
'
test_expect_success 'write a plugin' '
	cat >limit.py <<-EOT
	def plugin_init(p):
	    p.seen = 0
	    p.add_handler("job.validate", validate)
	    p.add_handler("job.state.priority", priority)
	    p.add_handler("plugin.query", lambda p, topic, args: {"seen": p.seen})

	def validate(p, topic, args):
	    p.seen += 1
	    if args["jobspec"]["attributes"]["system"]["duration"] == 0:
	        p.reject_job("a time limit is required")

	def priority(p, topic, args):
	    return {"priority": args["urgency"] * int(p.args["factor"])}
	EOT
'
test_expect_success 'load it with an argument' '
	flux jobtap load ./limit.py factor=10 &&
	test "$(flux jobtap list)" = limit.$so &&
	test_must_fail flux jobtap load ./limit.py 2>err &&
	grep "limit.$so already loaded" err
'
test_expect_success 'it rejects jobs and sets their priority' '
	test_must_fail flux submit true 2>err &&
	grep "a time limit is required" err &&
	id=$(flux submit -t 1m --wait true) &&
	flux job eventlog $id | grep "priority=160"
'
test_expect_success 'query and remove it' '
	flux jobtap query limit.$so | jq -e ".seen == 2" &&
	flux jobtap remove limit.$so &&
	flux submit --wait true &&
	test_must_fail flux jobtap remove limit.$so 2>err &&
	grep "limit.$so not found" err
'
test_expect_success 'a plugin that cannot be loaded says why' '
	echo "import nosuchmodule" >broken.py &&
	test_must_fail flux jobtap load ./broken.py 2>err &&
	grep "nosuchmodule" err &&
	test_must_fail flux jobtap load nosuch.py 2>err &&
	grep "nosuch.py not found" err
'
test_expect_success 'a plugin that fails is named in the log and harms nobody' '
	cat >fails.py <<-EOT &&
	def plugin_init(p):
	    p.add_handler("job.state.*", lambda p, topic, args: 1 / 0)
	EOT
	flux jobtap load ./fails.py &&
	flux submit --wait true &&
	flux dmesg >log &&
	grep "jobtap: fails.py: job.state.run: ZeroDivisionError" log &&
	flux jobtap remove all
'
test_done
