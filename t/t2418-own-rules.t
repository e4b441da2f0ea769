#!/bin/sh

test_description='rules of a site of its own: [rules], and rule=

Two nodes of two cores.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 2 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

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

    def started(self, job, alloc):
        self.running.add(job.jobid)

    def found_running(self, job):
        self.running.add(job.jobid)

    def freed(self, jobid, R, final):
        if final:
            self.running.discard(jobid)
            self.host.readmit(self, "bed")

    def report(self, caller):
        yield {"bed": "all", "used": len(self.running), "of": self.most}
EOT

test_expect_success 'a rule that the configuration names is asked as the built-in ones are' '
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 2" &&
	flux module remove sched-simple &&
	flux module load sched-backfill &&
	one=$(flux submit -n1 -t 10m sleep 300) && started $one &&
	cat >rules.toml <<-EOT &&
	[rules]
	beds = "$PWD/site_rules.py:Beds"
	[beds]
	all = 1
	EOT
	flux config load <rules.toml &&
	two=$(flux submit -n1 -t 10m sleep 300) &&
	reason $two >reason && cat reason &&
	grep "^beds: 1 of 1 are taken" reason
'
test_expect_success 'flux sched shows it as ours' '
	flux sched explain --json $two | jq -e ".jobs[0].rules[0].rule == \"beds\"" &&
	flux sched limits >out && cat out &&
	grep "^BED  *USED  *OF" out && grep "^all  *1  *1" out &&
	guest flux sched limits >guest && test_must_be_empty guest &&
	flux sched stats | jq -e ".rules[] | select(.name == \"beds\").source == \"$PWD/site_rules.py:Beds\""
'
test_expect_success 'it is there after a reload of the scheduler' '
	flux module reload sched-backfill &&
	reason $two | grep "beds: 1 of 1 are taken"
'
test_expect_success 'without it the job starts' '
	flux config load </dev/null && started $two
'
test_expect_success 'the scheduler of the start of the instance is back' '
	flux module remove sched-backfill && flux module load sched-simple &&
	flux cancel --all && flux job wait-event -t 20 $two clean >/dev/null
'

test_done
