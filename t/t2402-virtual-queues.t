#!/bin/sh

test_description='virtual queues: another name to submit under, with the resources of the parent

Of four nodes two are in queue batch, of which quick is a child. A real Flux has them from 0.89 on. Tests of their
rules in the embedded job manager: t/python/jobs.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

if ! printf '[queues.a]\n[queues.v]\nparent = "a"\n' | flux config load 2>/dev/null; then
	skip_all="this Flux has no virtual queues"
	test_done
fi
flux config load </dev/null

test_expect_success 'resources with properties, and the queues' '
	flux module remove sched-simple &&
	flux kvs put resource.R="$(flux R encode -r 0-3 -c 0-1 -H fake[0-3] -p batch:0-1 -p other:2-3)" &&
	flux config load <<-EOT &&
	[queues.batch]
	requires = ["batch"]
	policy.jobspec.defaults.system.duration = "1h"
	[queues.quick]
	parent = "batch"
	[queues.other]
	requires = ["other"]
	EOT
	flux module reload resource noverify monitor-force-up &&
	flux module load sched-backfill &&
	flux queue start --all --quiet
'
test_expect_success 'parent and child are one order: by priority, then by submission' '
	all=$(flux submit -q batch -N2 --exclusive -t 10m sleep inf) && started $all &&
	flux submit -q quick -N2 --exclusive -t 5m sleep inf >one &&
	flux submit -q batch -N2 --exclusive -t 5m sleep inf >two &&
	flux submit -q quick --urgency=20 -N2 --exclusive -t 5m sleep inf >first &&
	flux cancel $all && started $(cat first) &&
	flux cancel $(cat first) && started $(cat one) &&
	flux cancel $(cat one) && started $(cat two) &&
	flux cancel $(cat two)
'
test_expect_success 'a job of the child waits while its parent is stopped' '
	flux queue stop --quiet batch &&
	id=$(flux submit -q quick true) &&
	flux job wait-event -t 120 $id priority &&
	flux queue status quick >status && grep "stopped: parent queue .batch. is stopped" status &&
	test "$(flux jobs -no {state} $id)" = SCHED &&
	flux sched explain $id >explain && cat explain &&
	grep "queue quick is stopped: parent queue .batch. is stopped" explain &&
	flux queue start --quiet batch &&
	flux job wait-event -t 120 $id clean
'
test_expect_success 'flux sched when adds the constraint and defaults of the parent' '
	# An answer may be a second old, and so may still know the job before.
	test_wait_until "flux sched when -q quick -N2 | grep ^now" &&
	test_must_fail flux sched when -q quick -N3 2>err && grep "never: " err
'
test_expect_success 'it is removed' '
	flux module remove sched-backfill
'
test_done
