#!/bin/sh

test_description='the tables of a site: limits, licences, budgets, amounts, topology, sharing, fair share, rules of its own

Eight nodes of two cores in racks of four. The tests of each table are in t/python/scheduler. This script shows that tables
arrive with the configuration, apply to submitted jobs, are shown by flux sched, and remain after a reload.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 8 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# job OPTION...: a job of ten minutes
job() {
	flux submit -t 10m "$@" sleep inf
}
limits() {
	flux sched limits --json | jq -c "$1"
}
annotation() {
	flux jobs -no "{annotations.sched.$2}" $1
}
# waits_for TEXT ID: the job waits, with this reason
waits_for() {
	reason $2 >reason && cat reason && grep "$1" reason
}
# admin_changes_nothing ID: no job, no reservation, no configuration
admin_changes_nothing() {
	test_must_fail admin flux cancel $1 &&
	test_must_fail admin flux sched reserve by-admin --start=+1h --duration=1h --nodes=1 &&
	echo "{}" | test_must_fail admin flux config load &&
	test_must_fail admin flux module reload sched-backfill &&
	flux sched reservations --json | jq -e ".reservations == []" &&
	flux jobs -no {id} $1
}
idle() {
	flux cancel --all 2>/dev/null
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 8"
}
me=$(id -un)

test_expect_success 'an instance in a job counts the amounts allocated to the job' '
	flux module remove sched-simple &&
	cat >memory.toml <<-EOT &&
	[amounts]
	memory = "8G"
	EOT
	flux config load <memory.toml &&
	flux module load sched-backfill &&
	cat >inner.sh <<-EOT &&
	#!/bin/sh
	echo "amounts.memory = \"R\"" | flux config load
	flux module remove sched-simple
	flux module load sched-backfill
	flux sched limits --json | jq -r ".amounts[0].total"
	EOT
	chmod +x inner.sh &&
	flux run -N1 -n1 -c2 --setattr=memory=5G flux start ./inner.sh >inner && cat inner && grep "^5G$" inner &&
	flux module remove sched-backfill
'
test_expect_success 'without tables there are no limits; a job that names an unknown licence runs' '
	flux kvs put resource.R="$(flux R encode -r 0-7 -c 0-1 -H n[0-7])" &&
	flux module reload resource noverify monitor-force-up &&
	flux module load sched-backfill &&
	flux queue start --all --quiet &&
	limits "[.limits, .licenses, .budgets]" >none && cat none && grep "^\[\[\],\[\],\[\]\]" none &&
	early=$(job -n1 --setattr=licenses.matlab=2) && started $early
'
test_expect_success 'tables come into force with the configuration, for jobs that run already as well' '
	cat memory.toml - >tables.toml <<-EOT &&
	[queues.batch]
	[queues.debug]
	[policy.jobspec.defaults.system]
	queue = "batch"
	[limits.debug]
	per = "user"
	queues = ["debug"]
	max = {jobs = 1}
	[licenses]
	matlab = {total = 4, elsewhere = "$PWD/used", every = "1s", max-age = "10m"}
	[budgets.projects]
	per = "bank"
	period = "year"
	max = {node-hours = 3.5}
	[topology.rack]
	groups = {r1 = "n[0-3]", r2 = "n[4-7]"}
	EOT
	echo "matlab 1" >used &&
	flux config load <tables.toml && flux queue start --all --quiet &&
	test_wait_until "test \$(limits .licenses[0].used) = 2"
'
test_expect_success 'later jobs wait, with the reason' '
	matlab=$(job -n1 --setattr=licenses.matlab=2) &&
	waits_for "^licenses: matlab 2 of 4 in use, 1 elsewhere; needs 2" $matlab &&
	first=$(job -n1 -q debug) && started $first &&
	debug=$(job -n1 -q debug) &&
	waits_for "^limit debug: $me has 1 of 1 jobs in debug; needs 1" $debug &&
	red=$(flux submit -N1 -x -t 2h --setattr=bank=red sleep inf) && started $red &&
	redder=$(flux submit -N1 -x -t 2h --setattr=bank=red sleep inf) &&
	waits_for "^budget projects: bank red has taken 2.0 of 3.5 node-hours of this year; needs 2.0" $redder &&
	flux sched explain $redder | grep "budget projects: begins anew at " &&
	rack=$(job -N4 --exclusive --setattr=placement.level=rack) && started $rack &&
	test "$(annotation $rack placement)" = "rack r2" &&
	third=$(job -N4 --exclusive --setattr=placement.level=rack) && waits_for "" $third &&
	memory=$(job -n1 --setattr=memory=6G) && started $memory &&
	flux job info $memory R | jq -e ".scheduling.amounts.memory | add == \"6G\""
'
test_expect_success 'flux sched lists all of them; guests see only entries of no user' '
	flux sched limits >out && cat out &&
	grep "^LIMIT *WHOSE *NODES *CORES *GPUS *JOBS *WAITING" out && grep "^debug *$me *- *- *- *1/1 *1" out &&
	grep "^LICENCE *USED *TOTAL *RESERVED *WAITING" out && grep "^matlab *2 *4 *0 *1 *1 " out &&
	grep "^BUDGET *WHOSE *NODE-HOURS *CORE-HOURS *GPU-HOURS *UNTIL *WAITING" out &&
	grep "^projects *bank red *2.0/3.5 *- *- .* 1" out &&
	grep "^AMOUNT *IN_USE *TOTAL *LARGEST" out && grep "^memory *46G *64G *8G" out &&
	guest flux sched limits >guest && cat guest && test_must_fail grep "debug\|red" guest &&
	grep "^matlab" guest && grep "^memory" guest &&
	admin flux sched limits | sed "/^LICENCE/d; /^matlab/d" >admin && sed "/^LICENCE/d; /^matlab/d" out | test_cmp - admin &&
	flux sched windows >windows && cat windows && grep "^rack *0 *2 *0 *1$" windows
'
test_expect_success 'an admin may ask about jobs of others, a guest may not; neither can change anything' '
	admin flux sched explain $debug | grep "waits: limit debug" &&
	test_must_fail guest flux sched explain $debug 2>err && grep "is not a pending job" err &&
	test_must_fail guest flux sched stats &&
	admin_changes_nothing $debug
'
test_expect_success 'a reload of the scheduler finds all of it again' '
	flux module reload sched-backfill &&
	waits_for "2 of 4 in use" $matlab && waits_for "1 of 1 jobs in debug" $debug && waits_for "2.0 of 3.5" $redder &&
	waits_for "" $third && test "$(limits .amounts[0].in_use)" = "\"46G\"" &&
	flux cancel $early && started $matlab &&
	flux cancel $first && started $debug &&
	flux cancel $rack && started $third && test "$(annotation $third placement)" = "rack r2" &&
	flux cancel $red && started $redder
'
test_expect_success 'a job that may not wait is denied at once, or starts' '
	idle && flux config load </dev/null &&
	all=$(job -N8 -x) && started $all &&
	id=$(flux submit -n2 -t 1m --setattr=max-wait=0 true) && flux job wait-event -t 120 $id clean &&
	flux jobs -no "{exception.note}" $id | grep "^max-wait: it could not start at once" &&
	flux cancel $all && flux job wait-event -t 120 $all clean && flux run -n2 -t 1m --setattr=max-wait=0 true
'
test_expect_success 'sharing: nodes are of one bank, over a reload too' '
	printf "[sharing.all]\nmode = \"bank\"\n" | flux config load &&
	one=$(job -n1 --setattr=bank=red) && started $one &&
	two=$(job -N7 -n7 --setattr=bank=blue) && started $two &&
	three=$(job -n1 --setattr=bank=red) && started $three &&
	test "$(flux jobs -no {ranks} $one)" = "$(flux jobs -no {ranks} $three)" &&
	four=$(job -n1 --setattr=bank=green) &&
	waits_for "nodes have room but are another bank.s" $four &&
	test_wait_until "test \"\$(annotation $four t_estimate_kind)\" = promised" &&
	flux sched top --once >top && cat top &&
	grep "claims  8 nodes of one user or bank, with 7 idle cores" top &&
	flux module reload sched-backfill &&
	waits_for "nodes have room but are another bank.s" $four &&
	flux cancel $two && started $four && idle
'
test_expect_success 'fair share: the bank with the least use goes first, also after a reload' '
	flux sched shares | grep "fair share is off" &&
	printf "[fairshare]\nperiod = \"1h\"\nbanks = {red = 1, blue = 3}\n" | flux config load &&
	one=$(job -N8 -x --setattr=bank=red) && started $one &&
	two=$(job -N8 -x --setattr=bank=red) && three=$(job -N8 -x --setattr=bank=blue) &&
	test_wait_until "flux sched explain $two | grep \"fair share: $me in bank red is number 2 of 2\"" &&
	flux cancel $one && started $three &&
	flux sched shares >out && cat out &&
	grep "^BANK *USER *SHARES *PART *USED *USED-PART *PENDING *RUNNING" out &&
	grep "^blue  *3 *75.0% .* 0 *1" out && grep "^red *$me *1 *25.0% .* 1 *0" out &&
	flux module reload sched-backfill &&
	flux sched shares --json | jq -e "[.shares[] | select(.bank == \"red\" and .used > 0)] != []" &&
	idle
'

cat >site_rules.py <<'EOT'
from flux.scheduler.admission import Deferral
from flux.scheduler.site_policy.table_rule import TableRule


class Beds(TableRule):
    name = table = lists = "beds"

    def parse(self, key, value):
        if type(value) is not int:
            raise ValueError(f"{value!r}: expected a number")
        return value

    def configure(self, entries):
        self.most, self.running = sum(entries.values()), set()

    def check(self, job):
        if len(self.running) < self.most:
            return None
        return Deferral(f"beds: {len(self.running)} of {self.most} are taken", key="bed")

    def start(self, job, alloc):
        self.running.add(job.jobid)

    def hello(self, job):
        self.running.add(job.jobid)

    def free(self, jobid, R, final):
        if final:
            self.running.discard(jobid)
            self.host.readmit(self, "bed")

    def report(self, caller):
        yield {"bed": "all", "used": len(self.running), "of": self.most}
EOT

test_expect_success 'a rule of the site is asked as the built-in ones are, over a reload too' '
	one=$(job -n1) && started $one &&
	printf "[rules]\nbeds = \"$PWD/site_rules.py:Beds\"\n[beds]\nall = 1\n" | flux config load &&
	two=$(job -n1) && waits_for "^beds: 1 of 1 are taken" $two &&
	flux sched limits >out && cat out && grep "^BED  *USED  *OF" out && grep "^all  *1  *1" out &&
	flux sched stats | jq -e ".rules[] | select(.name == \"beds\").source == \"$PWD/site_rules.py:Beds\"" &&
	flux module reload sched-backfill && waits_for "^beds: 1 of 1 are taken" $two &&
	flux config load </dev/null && started $two && idle
'
test_expect_success 'sched-simple is back' '
	flux module stats sched-backfill | jq -e ".errors == 0" &&
	flux module remove sched-backfill && flux module load sched-simple
'

test_done
