#!/bin/sh

test_description='budgets of node-hours: [budgets.NAME]

Two nodes of two cores.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 2 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# job HOURS
job() {
	flux submit -N1 -x -t ${1}h --setattr=system.bank=red sleep 300
}
# taken: hours that are used, and that running jobs may use
taken() {
	flux sched limits --json | jq ".budgets[0] | .used.\"node-hours\" + .running.\"node-hours\" | round"
}

test_expect_success 'a job waits that could exceed the budget of its bank, and says so' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 2" &&
	flux module remove sched-simple &&
	flux module load sched-backfill &&
	cat >budgets.toml <<-EOT &&
	[budgets.projects]
	per = "bank"
	period = "year"
	max = {node-hours = 3.5}
	EOT
	flux config load <budgets.toml &&
	one=$(job 2) && started $one &&
	two=$(job 2) &&
	reason $two >reason && cat reason &&
	grep "^budget projects: bank red has taken 2.0 of 3.5 node-hours of this year; needs 2.0" reason &&
	three=$(job 1) && started $three &&
	test "$(taken)" = 3
'
test_expect_success 'flux sched limits and explain tell of it; a guest sees nothing of others' '
	flux sched limits >out && cat out &&
	grep "^BUDGET *WHOSE *NODE-HOURS *CORE-HOURS *GPU-HOURS *UNTIL *WAITING" out &&
	grep "^projects *bank red *3.0/3.5 *- *- .* 1" out &&
	flux sched explain $two | grep "budget projects: begins anew at " &&
	guest flux sched limits --json | jq -e ".budgets == []" &&
	admin_changes_nothing $two
'
test_expect_success 'a reload of the scheduler counts as before' '
	flux module reload sched-backfill &&
	test "$(taken)" = 3 &&
	reason $two | grep "needs 2.0" &&
	flux cancel $one && started $two &&
	flux cancel --all && flux job wait-event -t 20 $two clean >/dev/null &&
	flux config load </dev/null &&
	flux module remove sched-backfill && flux module load sched-simple
'

test_done
