#!/bin/sh

test_description='the example plugins, on either host'

. "$(dirname "$0")/sharness.sh"
. "$SHARNESS_TEST_SRCDIR/jobtap/lib.sh"
test_under_flux 4 job

event() { flux job wait-event -t 120 "$@"; }
# posted ID NAME: the job has had such an event
posted() { flux job eventlog $1 | grep -q " $2\( \|$\)"; }

test_expect_success 'an empty configuration' '
	: >empty.toml && flux config load empty.toml
'
test_expect_success 'node-limits: a job beyond the limit is rejected, others wait their turn' '
	cat >limits.toml <<-EOT &&
	[node-limits]
	user = 3
	EOT
	flux config load limits.toml &&
	flux jobtap load node-limits.py &&
	test_must_fail flux submit -N4 true 2>err && grep "4 nodes are beyond the limit for one user" err &&
	one=$(flux submit -N2 sleep inf) && event $one start &&
	two=$(flux submit -N2 sleep inf) && three=$(flux submit -N1 sleep inf) &&
	event $two dependency-add && event $three dependency-add &&
	flux jobtap query node-limits.$so | jq -e ".held == 2 and .nodes[\"$(id -u)\"] == 2" &&
	flux cancel $one && event $two start && event $three start &&
	flux cancel $two $three && flux queue drain &&
	flux jobtap query node-limits.$so | jq -e ".held == 0 and .nodes == {}"
'
test_expect_success 'node-limits: by queue; a plugin loaded again knows its jobs' '
	cat >queues.toml <<-EOT &&
	[queues.debug]
	[queues.batch]
	[node-limits.queues.debug]
	user = 1
	EOT
	flux config load queues.toml && flux queue start --all &&
	one=$(flux submit -q debug -N1 sleep inf) && event $one start &&
	two=$(flux submit -q debug -N1 sleep inf) && event $two dependency-add &&
	flux jobtap remove node-limits.$so && flux jobtap load node-limits.py &&
	three=$(flux submit -q batch -N1 sleep inf) && event $three start &&
	! posted $two depend &&
	four=$(flux submit -q debug -N1 sleep inf) && event $four dependency-add &&
	flux cancel $one && event $two start &&
	flux jobtap remove node-limits.$so && flux cancel $two && event $two clean && ! posted $four depend &&
	flux jobtap load node-limits.py && event $four start && flux cancel $three $four && flux queue drain &&
	printf "[node-limits]\nuser = \"x\"\n" >bad.toml && test_must_fail flux config load bad.toml 2>err &&
	grep "expected a number of nodes" err &&
	flux jobtap remove node-limits.$so && flux config load empty.toml
'
test_expect_success 'priority-multifactor: size and shares, from a file that may change' '
	echo "{\"$(id -u)\": 0.25}" >shares.json &&
	flux jobtap load priority-multifactor.py shares=$(pwd)/shares.json share=1000 size=400 max-nodes=4 period=0.2 &&
	all=$(flux submit -N4 sleep inf) && event $all start &&
	id=$(flux submit -N2 true) && event $id priority &&
	flux job eventlog $id | grep "priority priority=16450$" &&
	echo "{\"$(id -u)\": 0.75}" >shares.json &&
	event --match-context=priority=16950 $id priority &&
	echo "nonsense" >shares.json &&
	test_wait_until "flux dmesg | grep -q \"the shares read before remain in use\"" &&
	flux cancel $all && event $id clean && flux jobtap remove priority-multifactor.$so &&
	test_must_fail flux jobtap load priority-multifactor.py weight=1 2>err && grep "for one of age, size" err
'
test_expect_success 'perilog: a prolog before, an epilog after; a prolog that fails ends the job' '
	cat >perilog.toml <<-EOT &&
	[job-manager.prolog]
	command = ["sh", "-c", "echo prolog >>$(pwd)/out; test ! -f $(pwd)/fail"]
	[job-manager.epilog]
	command = ["sh", "-c", "echo epilog >>$(pwd)/out"]
	EOT
	flux config load perilog.toml && flux jobtap load perilog.py &&
	id=$(flux submit -N1 true) && event $id clean &&
	printf "prolog\nepilog\n" >expected && test_cmp expected out &&
	touch fail && id=$(flux submit -N1 true) && event $id clean &&
	flux job eventlog $id >log && grep "prolog-finish.*status=256" log && grep "exception type=\"prolog\"" log &&
	test_must_fail grep " start" log && rm fail &&
	flux jobtap remove perilog.$so && flux config load empty.toml
'
test_expect_success 'perilog: a job canceled during its prolog' '
	printf "[job-manager.prolog]\ncommand = [\"sleep\", \"inf\"]\n" >slow.toml &&
	flux config load slow.toml && flux jobtap load perilog.py &&
	id=$(flux submit -N1 true) && event $id prolog-start && sleep 0.5 && flux cancel $id &&
	event $id clean && posted $id prolog-finish && flux jobtap remove perilog.$so && flux config load empty.toml
'
test_expect_success 'dependency-file: a job waits for a file' '
	flux jobtap load dependency-file.py period=0.1 &&
	id=$(flux submit --dependency=file:$(pwd)/ready true) && event $id dependency-add &&
	flux jobtap remove dependency-file.$so && flux jobtap load dependency-file.py period=0.1 &&
	! posted $id depend && touch ready && event $id clean &&
	test_must_fail flux submit --dependency=file:relative true 2>err && grep "expected an absolute path" err &&
	flux jobtap remove dependency-file.$so
'
test_expect_success 'submit-policy: defaults are filled in, excess is cut' '
	flux jobtap load submit-policy.py duration=600 max-duration=1200 bank=guest &&
	id=$(flux submit true) && event $id clean &&
	flux job eventlog $id | grep "jobspec-update.*duration.*600.*bank.*guest" &&
	id=$(flux submit -t 1h --setattr=bank=mine true) && event $id clean &&
	flux job eventlog $id >log && grep "jobspec-update.*duration.*1200" log && test_must_fail grep guest log &&
	test_must_fail flux jobtap load -r submit-policy.$so submit-policy.py duration=-1 2>err && grep "expected seconds" err
'
test_expect_success 'power: by node, by core, or as the job says' '
	flux jobtap load power.py node=650 core=6.5 &&
	for job in "-N2 -n2 -c1|1300" "-n3 -c1|20" "-N1 --setattr=system.licenses.watts=77|77"; do
		id=$(flux submit ${job%|*} true) && event $id clean &&
		flux job info $id jobspec >spec && flux job eventlog $id >log &&
		grep -E "watts\"?[:=] ?${job#*|}[^0-9]" spec log || return 1
	done &&
	test_must_fail flux jobtap load -r power.$so power.py node=x 2>err && grep "expected watts" err
'
test_expect_success 'queue-access: listed users may submit; a wrong table is refused' '
	flux jobtap remove all && flux jobtap load queue-access.py &&
	printf "[policy.access]\nallow-user = [\"$(id -un)\"]\n[queues.debug]\n" >access.toml &&
	flux config load access.toml && flux queue start --all &&
	id=$(flux submit -q debug true) && event $id clean &&
	printf "[queues.debug.policy.access]\nallow-group = [7]\n" >bad.toml && test_must_fail flux config load bad.toml 2>err &&
	grep "allow-group" err && flux config load empty.toml && flux jobtap remove all
'
test_expect_success 'alloc-bypass, alloc-check and priority-bank' '
	flux jobtap load alloc-check.py && flux jobtap load alloc-bypass.py &&
	flux module remove sched-simple &&
	id=$(flux submit --setattr=system.alloc-bypass.R="$(flux R encode -r2)" sleep inf) && event $id start &&
	test "$(flux jobs -no {ranks} $id)" = 2 &&
	flux jobtap query alloc-check.$so | jq -e ".held > 0" &&
	flux cancel $id && event $id clean && flux jobtap query alloc-check.$so | jq -e ".held == 0" &&
	flux module load sched-simple && flux jobtap remove all &&
	flux jobtap load priority-bank.py &&
	id=$(flux submit --setattr=bank=physics true) && event $id depend && ! posted $id priority &&
	flux python -c "import flux; flux.Flux().rpc(\"job-manager.priority-bank.weights\", {\"weights\": {\"physics\": 300}}).get()" &&
	event --match-context=priority=16300 $id priority && event $id clean && flux jobtap remove all
'
test_done
