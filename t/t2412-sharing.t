#!/bin/sh

test_description='who may be on a node together: [sharing.NAME]

Four nodes of two cores. All jobs are of one user, so banks are what tells them apart.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# job BANK [OPTION...]
job() {
	bank=$1
	shift
	flux submit -t 10m --setattr=system.bank=$bank "$@" sleep 300
}
ranks() {
	flux jobs -no "{ranks}" $1
}
clean() {
	flux cancel --all && test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4"
}

test_expect_success 'sched-backfill is loaded, with nodes of one bank each' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4" &&
	flux module remove sched-simple &&
	flux module load sched-backfill &&
	cat >bank.toml <<-EOT &&
	[sharing.all]
	mode = "bank"
	EOT
	flux config load <bank.toml
'
test_expect_success 'a bank fills its own node first, another bank gets another' '
	one=$(job red -n1) && started $one &&
	two=$(job blue -n1) && started $two &&
	three=$(job red -n1) && started $three &&
	test "$(ranks $one)" = "$(ranks $three)" &&
	test "$(ranks $one)" != "$(ranks $two)"
'
test_expect_success 'a job waits though cores are free: they are strangers' '
	wide=$(job green -N2 -n2) && started $wide &&
	four=$(job black -n1) &&
	reason $four >reason && cat reason &&
	grep "nodes have room but are another bank.s" reason
'
test_expect_success 'it is promised the time at which the last of them has ended, and the cores are shown' '
	test_wait_until "test -n \"\$(flux jobs -no {annotations.sched.t_estimate} $four)\"" &&
	test "$(flux jobs -no {annotations.sched.t_estimate_kind} $four)" = promised &&
	flux sched top --once >top && cat top &&
	grep "claims  4 nodes of one user or bank, with 3 idle cores for nobody else" top
'
test_expect_success 'a reload of the scheduler knows whose the nodes are' '
	flux module reload sched-backfill &&
	reason $four | grep "nodes have room but are another bank.s" &&
	flux sched stats | jq -e "[.claims[] | select(.mode == \"bank\")] | length == 3" &&
	flux cancel $two && started $four && clean
'
test_expect_success 'sched-simple is back' '
	flux config load </dev/null &&
	flux module remove sched-backfill && flux module load sched-simple
'

test_done
