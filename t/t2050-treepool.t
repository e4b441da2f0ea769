#!/bin/sh

test_description='TreePool: jobs land where their GPUs are

Four nodes are made from the XML of a machine with two sockets and four GPUs. R says by its writer which pool
reads it, so no scheduler is told.
'

. "$(dirname "$0")/sharness.sh"

XML=$SHARNESS_TEST_SRCDIR/hwloc/two-socket-four-gpu.xml
FAKE="--conf=fake-resources.hwloc-xml-path=$XML --conf=fake-resources.amend-r=flux.resource.TreePool:amend"

if ! test_flux_since 86; then
	skip_all="this Flux invents no resources"
	test_done
fi
# Without the compiled part there is no XML to be read. (On a real Flux, the python is its own.)
if test -z "$TEST_UNDER_FLUX_ACTIVE" &&
	! flux start $FAKE --conf=fake-resources.nnodes=1 true 2>/dev/null; then
	skip_all="no fake resources from hwloc XML: is _flux_hwloc built?"
	test_done
fi

# As many brokers as nodes: jobs are real processes.
test_under_flux 4 full --conf=resource.noverify=true $FAKE --conf=fake-resources.nnodes=4 --conf=fake-resources.host-prefix=tp

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# The resources of a job: "RANKS CORES GPUS" for each entry of its R.
held() {
	flux job info "$1" R | jq -r ".execution.R_lite[] | [.rank, .children.core, .children.gpu] | @tsv" | tr "\t" " "
}
waiting() {
	flux job wait-event -t 120 "$1" start >/dev/null
}

test_expect_success 'the nodes have the cores and GPUs of the XML' '
	flux resource info >info &&
	grep "^4 Nodes, 32 Cores, 16 GPUs" info &&
	flux kvs get resource.R | jq -e ".scheduling.writer == \"TreePool\"" &&
	flux kvs get resource.R | jq -e ".scheduling.children[0].topo.socket | length == 2"
'
test_expect_success 'the scheduler finds the pool by the writer of R' '
	flux module remove sched-simple &&
	flux module load sched-fifo &&
	dmesg-grep.py -t 120 "sched-fifo.*ready:.*TreePool"
'
test_expect_success 'two jobs of one GPU: beside two different GPUs of one node' '
	id1=$(flux submit -N1 -n1 -c1 -g1 sleep inf) &&
	id2=$(flux submit -N1 -n1 -c1 -g1 sleep inf) &&
	waiting $id1 && waiting $id2 &&
	{ held $id1 && held $id2; } >placed &&
	printf "0 0 0\n0 1 1\n" >expected &&
	test_cmp expected placed
'
test_expect_success 'a third goes to the other socket, and so do its cores' '
	id3=$(flux submit -N1 -n1 -c3 -g1 sleep inf) &&
	waiting $id3 &&
	echo "0 4-6 2" >expected &&
	held $id3 >placed &&
	test_cmp expected placed
'
test_expect_success 'the R of a job names its own ranks in the topology' '
	id4=$(flux submit -N2 -n2 -c8 sleep inf) &&
	waiting $id4 &&
	held $id4 >placed &&
	echo "1-2 0-7 " >expected &&
	test_cmp expected placed &&
	flux job info $id4 R | jq -e ".scheduling.children | map(.ranks) == [\"1-2\"]" &&
	flux job info $id4 R | jq -e ".scheduling.writer == \"TreePool\""
'
test_expect_success 'jobs on any ranks outlive a reload of the scheduler' '
	flux module reload sched-fifo &&
	test_wait_until "flux resource list -s allocated -no {ncores} | grep \"^21$\"" &&
	test $(flux jobs -no {state} | sort | uniq -c | sed "s/^ *//" | tr " " :) = 4:RUN &&
	id5=$(flux submit -N1 -n1 -c1 -g1 sleep inf) &&
	waiting $id5 &&
	echo "0 7 3" >expected &&
	held $id5 >placed &&
	test_cmp expected placed
'
test_expect_success 'flux sched topology shows the units of each job' '
	flux sched topology >topology &&
	grep "^tp0 (rank 0): 8 cores, 4 GPUs; 2 cores, 0 GPUs free" topology &&
	grep "^tp3 (rank 3): 8 cores, 4 GPUs; all free" topology &&
	grep "socket 1 .*cores 4-7 " topology &&
	flux run -n1 flux sched topology -r3 >topology &&
	grep "^tp3 (rank 3): 8 cores" topology
'
test_expect_success 'a whole socket, by name' '
	flux cancel --all &&
	flux queue idle -t 120 &&
	flux module reload -f job-ingest disable-validator &&
	flux submit --dry-run -n1 true |
		jq ".version = 9999 | .resources = [{type: \"slot\", count: 1, label: \"task\",
			with: [{type: \"socket\", count: 1, exclusive: true}]}]" >spec.json &&
	id=$(flux job submit spec.json) &&
	flux job wait-event -t 120 $id clean &&
	held $id >placed &&
	echo "0 0-3 0-1" >expected &&
	test_cmp expected placed
'
test_expect_success 'an instance in a job schedules by topology too' '
	cat >inner.sh <<-EOF &&
	flux resource info
	flux kvs get resource.R | jq -c "[.execution.R_lite[].rank, .scheduling.writer]"
	flux submit -N1 -n1 -c1 -g1 sleep inf >id1
	flux submit -N1 -n1 -c4 -g1 sleep inf >id2
	for id in \$(cat id1 id2); do
		flux job wait-event -t 120 \$id start >/dev/null
		flux job info \$id R | jq -c ".execution.R_lite[0].children"
	done
	flux cancel --all 2>/dev/null
	flux dmesg | grep -o "pool-class=[A-Za-z]*" | head -n 1
	EOF
	blocker=$(flux submit -N1 -n1 -c8 sleep inf) &&
	flux run -N2 -n2 -c8 -g4 flux start sh inner.sh >inner.out &&
	cat inner.out &&
	grep "^2 Nodes, 16 Cores, 8 GPUs" inner.out &&
	grep "^\[\"0-1\",\"TreePool\"\]" inner.out &&
	grep "^pool-class=TreePool" inner.out &&
	grep "{\"core\":\"0\",\"gpu\":\"0\"}" inner.out &&
	grep "{\"core\":\"4-7\",\"gpu\":\"2\"}" inner.out &&
	flux cancel $blocker
'
test_expect_success 'on part of a node too, where its cores have other numbers' '
	cat >part.sh <<-EOF &&
	flux kvs get resource.R | jq -r ".execution.R_lite[0].children.core"
	for i in 1 2; do
		id=\$(flux submit -N1 -n1 -c1 -g2 sleep inf)
		flux job wait-event -t 120 \$id start >/dev/null
		flux job info \$id R | jq -c ".execution.R_lite[0].children | [.core, .gpu]"
	done
	flux sched topology >topology
	flux cancel --all 2>/dev/null
	EOF
	blocker=$(flux submit -N1 -n1 -c2 sleep inf) && waiting $blocker &&
	flux run -N1 -n1 -c4 -g4 --requires=-rank:1-3 flux start sh part.sh >part.out &&
	printf "%s\n" 0-3 "[\"0\",\"0-1\"]" "[\"2\",\"2-3\"]" >expected &&
	test_cmp expected part.out &&
	grep "socket 1 .*cores 2-3 *b\. *gpus 2-3 bb" topology &&
	flux cancel $blocker
'
test_expect_success 'a node that is excluded from scheduling is missing in R, not in the topology' '
	cat >exclude.toml <<-EOF &&
	[resource]
	exclude = "0"
	noverify = true
	[fake-resources]
	nnodes = 3
	hwloc-xml-path = "$XML"
	amend-r = "flux.resource.TreePool:amend"
	EOF
	cat >exclude.sh <<-EOF &&
	flux resource list -s free -no {ranks}
	id=\$(flux submit -N1 -n1 -c1 -g2 --setattr=exec.test.run_duration=1s true)
	flux job wait-event -t 120 \$id start >/dev/null
	flux job info \$id R | jq -c "[.execution.R_lite[0].rank, .scheduling.children[0].ranks]"
	EOF
	flux start -s3 --config-path=exclude.toml sh exclude.sh >exclude.out &&
	printf "%s\n" 1-2 "[\"1\",\"1\"]" >expected &&
	test_cmp expected exclude.out
'
test_expect_success EMBEDDED 'flux R encode counts cores and GPUs of XML' '
	flux R encode -r0-1 -H "a[0-1]" --hwloc-xml="$XML" >R.json &&
	jq -e ".execution.R_lite == [{rank: \"0-1\", children: {core: \"0-7\", gpu: \"0-3\"}}]" R.json
'

test_expect_success 'the simulation of a running instance has the topology, too' '
	flux python "$FLUX_SOURCE_DIR/src/bindings/python/flux/simulate/probe.py" >probed &&
	jq -e ".resources.R.scheduling.writer == \"TreePool\"" probed
'

test_done
