#!/bin/sh

test_description='preemption: jobs of standby end so that jobs of batch can start

Four nodes, which standby fills.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4 job

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# A task that does not end by the signal of the warning, but tells of it.
standby() {
	flux submit -N${1:-1} -x -t 1h --queue=standby sh -c "trap 'touch $PWD/signaled' USR1; while :; do sleep 60 & wait; done"
}
# fill: four jobs of a node each; $v is the youngest, which loses least
fill() {
	for i in 1 2 3 4; do v=$(standby) && flux job wait-event -t 120 $v start >/dev/null || return 1; done
}
# warned JOB, ended JOB: an event of its log
warned() {
	test_wait_until "flux job eventlog $1 >log && grep \"type=.preempt. severity=1.*will end at .* for a job of batch\" log"
}
ended() {
	flux job wait-event -t 120 -m severity=0 $1 exception >log && grep "type=.preempt. severity=0.*preempted for $2 (batch); ran" log
}
clean() {
	flux cancel --all 2>/dev/null; test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4"
}

test_expect_success 'sched-backfill, and a table' '
	cat >conf.toml <<-EOT &&
	[queues.batch]
	[queues.standby]
	[policy.jobspec.defaults.system]
	queue = "batch"
	[exec]
	kill-timeout = "1s"
	[preemption.standby]
	rank = 0
	queues = ["standby"]
	grace = "2s"
	signal = "SIGUSR1"
	wait = "1s"
	EOT
	flux module remove sched-simple &&
	flux config load <conf.toml &&
	flux module load sched-backfill &&
	flux queue start --all --quiet
'
test_expect_success 'a victim is warned and ended, and the job starts there' '
	fill && b=$(flux submit --queue=batch -N1 -x -t 60s sleep 0) &&
	warned $v && test_wait_until "test -f signaled" && ended $v $b &&
	flux job wait-event -t 120 $b clean &&
	test "$(flux jobs -ano {ranks} $b)" = "$(flux jobs -ano {ranks} $v)" &&
	flux jobs -ano "{status} {user.preempted}" $v | grep "FAILED.*class standby" &&
	test $(flux jobs -f running -no {queue} | grep -c standby) = 3 &&
	flux sched stats | jq -e ".preemptions[0].victims == 1 and .preemptions[0].useless == 0" &&
	flux sched preemptions | grep standby && clean
'
test_expect_success 'a dry run and explain list the victims, to the owner and admins only' '
	sed "s/^wait.*/wait = \"1d\"/" conf.toml | flux config load &&
	fill && b=$(flux submit --queue=batch -N2 -x -t 60s true) &&
	flux job wait-event -t 120 $b priority &&
	flux sched preempt --dry-run $b >out && cat out &&
	grep "$b could start now by ending 2 jobs of standby (0.0 node-hours)" out &&
	grep "$v *standby" out &&
	flux sched explain $b | grep "could start now by ending 2 jobs of standby" &&
	test_must_fail guest flux sched preempt --dry-run $b 2>err && grep "is not a pending job" err &&
	admin flux sched preempt --dry-run $b | test_cmp out - &&
	test_must_fail flux sched preempt $b 2>err && grep dry-run err && clean
'
test_expect_success 'after a reload during the grace the job starts, and no further job ends' '
	sed "s/^grace.*/grace = \"8s\"/" conf.toml | flux config load &&
	fill && b=$(flux submit --queue=batch -N1 -x -t 10m sleep inf) &&
	warned $v &&
	flux module reload sched-backfill &&
	started $b &&
	test $(flux jobs -f running -no {queue} | grep -c standby) = 3 &&
	test "$(flux jobs -no {ranks} $b)" = "$(flux jobs -ano {ranks} $v)" &&
	test $(flux job eventlog $v | grep -c severity=1) = 1 && clean
'
test_expect_success 'a job that runs in promised time is ended once the time is needed' '
	sed "s/^rank.*/into-promises = true/" conf.toml | flux config load &&
	a=$(flux submit --queue=batch -N2 -x -t 10m sleep inf) && started $a &&
	b=$(flux submit --queue=batch -N4 -x -t 60s true) &&
	test_wait_until "flux sched explain $b | grep promised" &&
	v=$(standby 2) && started $v &&
	flux sched preemptions >out && cat out && grep "$b *runs .*$v *standby" out &&
	flux sched explain $b | grep "1 job of standby runs in its time; ended at" &&
	flux jobs -no "{annotations.sched.t_preempt}" $v | grep "[0-9]" &&
	guest flux sched preemptions --json | jq -e ".borrowers == []" &&
	flux cancel $a && flux job wait-event -t 120 $b clean &&
	warned $v && ended $v $b
'
test_expect_success 'sched-simple is back' '
	flux config load </dev/null &&
	flux module remove sched-backfill && flux module load sched-simple
'

test_done
