#!/bin/sh

test_description='fair share: [fairshare]

Two nodes of two cores.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 2 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# job BANK: a job of both nodes
job() {
	flux submit -N2 -x -t 10m --setattr=system.bank=$1 sleep 300
}
# used BANK: core-hours
used() {
	flux sched shares --json | jq ".shares[] | select(.bank == \"$1\" and .user == null) | .used"
}
me=$(id -un)

test_expect_success 'without the table fair share is off' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 2" &&
	flux module remove sched-simple &&
	flux module load sched-backfill &&
	flux sched shares | grep "fair share is off"
'
test_expect_success 'with it, who has used least goes first, whoever came first' '
	cat >shares.toml <<-EOT &&
	[fairshare]
	period = "1s"
	banks = {red = 1, blue = 3}
	EOT
	flux config load <shares.toml &&
	one=$(job red) && started $one &&
	two=$(job red) && three=$(job blue) &&
	test_wait_until "flux sched explain $two | grep \"fair share: $me in bank red is number 2 of 2\"" &&
	flux sched explain --json $three | jq -e ".jobs[0].fairshare.place == 1" &&
	flux cancel $one && started $three
'
test_expect_success 'flux sched shares lists them' '
	flux sched shares >out && cat out &&
	grep "^BANK *USER *SHARES *PART *USED *USED-PART *PENDING *RUNNING" out &&
	grep "^blue  *3 *75.0% .* 0 *1" out &&
	grep "^red *$me *1 *25.0% .* 1 *0" out
'
test_expect_success 'a reload of the scheduler forgets nothing' '
	before=$(used red) &&
	flux module reload sched-backfill &&
	used red | jq -e ". > 0.9 * $before" &&
	flux sched explain --json $two | jq -e ".jobs[0].fairshare.bank == \"red\"" &&
	flux kvs get checkpoint.sched-fairshare | jq -e ".version == 1"
'
test_expect_success 'sched-simple is back' '
	flux cancel --all && flux queue idle --timeout=60 &&
	flux config load </dev/null &&
	flux module remove sched-backfill &&
	flux module load sched-simple
'

test_done
