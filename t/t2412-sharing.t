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
test_expect_success 'an admin is told whose the nodes are, a guest is not; neither changes anything' '
	explained_to_admins_only $four "nodes have room but are another bank.s" &&
	admin flux sched stats | jq -e "[.claims[].whose] | sort == [\"blue\", \"green\", \"red\"]" &&
	test_must_fail guest flux sched stats &&
	admin_changes_nothing $four
'
test_expect_success 'a reload of the scheduler knows whose the nodes are' '
	flux module reload sched-backfill &&
	reason $four | grep "nodes have room but are another bank.s" &&
	flux sched stats | jq -e "[.claims[] | select(.mode == \"bank\")] | length == 3" &&
	flux cancel $two && started $four && clean
'
test_expect_success 'whole nodes: the fewest that hold the job, with all their cores' '
	sed s/bank/node/ bank.toml | flux config load &&
	one=$(job red -n3) && started $one &&
	flux job info $one R >R && cat R &&
	jq -e "[.execution.R_lite[] | .children.core] | unique == [\"0-1\"]" R &&
	test $(flux jobs -no {nnodes} $one) = 2 &&
	two=$(job red -n1) && started $two &&
	test $(flux resource list -s free -no {ncores}) = 2 &&
	clean
'
test_expect_success 'a fault is one line, and the rule stays as it was' '
	sed s/bank/nobody/ bank.toml | flux config load &&
	flux dmesg | grep "configuration: \[sharing.all\] mode=.nobody.: expected .free. or .bank. or .user. or .node." &&
	one=$(job red -n1) && started $one &&
	test $(flux resource list -s free -no {nnodes}) = 3 && clean
'
test_expect_success 'sched-fifo and sched-simple keep it, too' '
	flux config load <bank.toml &&
	for name in sched-fifo sched-simple; do
		flux module remove $(flux module list | grep -o "sched-[a-z]*" | head -n1) &&
		flux module load $name queue-depth=unlimited &&
		one=$(job red -N4 -n4) && started $one &&
		two=$(job blue -n1) &&
		reason $two | grep "4 nodes have room but are another bank.s" &&
		three=$(job red -n1) &&
		reason $three | grep "behind $two" &&
		flux cancel $one && started $two && started $three && clean || return 1
	done
'

test_done
