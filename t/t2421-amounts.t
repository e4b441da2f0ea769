#!/bin/sh

test_description='memory and other amounts on nodes: [amounts]

Two nodes of two cores.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 2 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# in_use: memory that jobs have
in_use() {
	flux sched limits --json | jq -r ".amounts[0].in_use"
}

test_expect_success 'two jobs share a node as far as its memory goes' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 2" &&
	cat >amounts.toml <<-EOT &&
	[amounts]
	memory = "8G"
	EOT
	flux config load <amounts.toml &&
	flux module remove sched-simple &&
	flux module load sched-backfill &&
	one=$(flux submit -n1 --setattr=system.memory=6G -t 1h sleep 300) && started $one &&
	two=$(flux submit -n1 --setattr=system.memory=6G -t 1h sleep 300) && started $two &&
	three=$(flux submit -n1 --setattr=system.memory=3G -t 1h sleep 300) &&
	reason $three >reason && cat reason &&
	grep "needs 1 slot of 1 core and 3 GiB memory, 0 free on 0 of 2 nodes (2 busy)" reason &&
	four=$(flux submit -n2 --setattr=system.memory=2G -t 1h sleep 300) && started $four &&
	test "$(in_use)" = 16G
'
test_expect_success 'R of a job has what it was given' '
	flux job info $one R | jq -e ".scheduling.amounts.memory | add == \"6G\""
'
test_expect_success 'flux sched limits lists it, to a guest too' '
	flux sched limits >out && cat out &&
	grep "^AMOUNT *IN_USE *TOTAL *LARGEST" out &&
	grep "^memory *16G *16G *8G" out &&
	guest flux sched limits --json | jq -e ".amounts[0].total == \"16G\""
'
test_expect_success 'a reload of the scheduler finds it again' '
	flux module reload sched-backfill &&
	test "$(in_use)" = 16G &&
	reason $three | grep "3 GiB memory"
'
test_expect_success 'what a job leaves is there for others' '
	flux cancel $four && flux job wait-event -t 30 $four free &&
	test "$(in_use)" = 12G &&
	flux cancel $one && started $three && test "$(in_use)" = 9G
'
test_expect_success 'a change is in force at the next load, and a fault is one line' '
	sed "s/8G/many/" amounts.toml | flux config load &&
	flux dmesg | grep "configuration: \[amounts.memory\] each=.many.: expected an amount such as" &&
	sed "s/8G/4G/" amounts.toml | flux config load &&
	flux dmesg | grep "\[amounts\] has changed: it is in force when the scheduler is loaded anew" &&
	test "$(in_use)" = 9G
'
test_expect_success 'an instance of a job counts what the job was given' '
	flux cancel --all && test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 2" &&
	cat >inner.sh <<-EOT &&
	#!/bin/sh
	echo "amounts.memory = \"R\"" | flux config load
	flux module remove sched-simple
	flux module load sched-backfill
	flux sched limits --json | jq -r ".amounts[0].total"
	EOT
	chmod +x inner.sh &&
	flux run -N1 -n1 -c2 --setattr=system.memory=5G flux start ./inner.sh >inner && cat inner &&
	grep "^5G$" inner &&
	flux config load </dev/null &&
	flux module remove sched-backfill && flux module load sched-simple
'

test_done
