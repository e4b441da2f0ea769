#!/bin/sh

test_description='preemption: jobs of standby end so that jobs of batch can start

Each test starts an instance of four nodes, of which standby fills what it can.
'

. "$(dirname "$0")/sharness.sh"

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# instance SCRIPT [OPTION of flux start ...]: run a script with $SCHEDULER, or sched-backfill, in an
# instance
instance() {
	script=$1
	shift
	cat >script.sh <<-END
	set -e
	flux module remove sched-simple
	flux module load ${SCHEDULER:-sched-backfill}
	flux queue start --all --quiet
	. $SHARNESS_TRASH_DIRECTORY/functions.sh
	$script
	flux cancel --all 2>/dev/null || true
	# The end of the instance unloads what its start has loaded.
	flux module list | grep -o "^ *sched-[a-z]*" | xargs -n1 flux module remove
	flux module load sched-simple
	END
	run_timeout 120 flux start --test-size=4 "$@" \
	    "-Sbroker.rc1_path=flux modprobe run $FLUX_TEST_LIB/rc/rc1-job.py" \
	    "-Sbroker.rc3_path=flux modprobe run $FLUX_TEST_LIB/rc/rc3.py" \
	    -Slog-stderr-level=3 -Slog-filename=broker.log -Slog-forward-level=7 sh -x script.sh
}

test_expect_success 'configurations, and what all scripts use' '
	mkdir conf &&
	cat >conf/queues.toml <<-EOT &&
	[queues.batch]
	[queues.standby]
	[policy.jobspec.defaults.system]
	queue = "batch"
	[exec]
	kill-timeout = "1s"
	EOT
	cat >conf/preemption.toml <<-EOT &&
	[preemption.standby]
	rank = 0
	queues = ["standby"]
	grace = "3s"
	signal = "SIGUSR1"
	wait = "1s"
	max = {jobs = 3, node-hours = 100}
	EOT
	cp -r conf conf-log && sed -i "s/^grace.*/mode = \"log\"/" conf-log/preemption.toml &&
	cp -r conf conf-slow && sed -i "s/^grace.*/grace = \"10m\"/" conf-slow/preemption.toml &&
	cp -r conf conf-bad && cp -r conf conf-wait && sed -i "s/^wait.*/wait = \"1d\"/" conf-wait/preemption.toml &&
	cat >functions.sh <<-\EOT
	guest() { FLUX_HANDLE_USERID=9999 FLUX_HANDLE_ROLEMASK=0x2 "$@"; }
	admin() { FLUX_HANDLE_USERID=9998 FLUX_HANDLE_ROLEMASK=0xa "$@"; }
	# A task that does not end by the signal of the warning.
	standby() { flux submit -N${1:-1} -x -t 1h --queue=standby sh -c "trap \"\" USR1; exec sleep 600"; }
	wait_log() { # PATTERN JOB
		for i in $(seq 300); do
			flux job eventlog $2 >log.$$ && grep -q "$1" log.$$ && return
			sleep 0.1
		done
		cat log.$$; return 1
	}
	EOT
'

for SCHEDULER in sched-fifo sched-backfill; do
test_expect_success "$SCHEDULER: a victim is warned and ended, and the job starts there" '
	instance "
	for i in 1 2 3 4; do flux job wait-event -t 30 \$(standby) start; done
	flux run --queue=batch -N2 -x -t 60s true
	flux jobs -ano \"{id.f58} {queue} {status} {user.preempted}\" >jobs
	cat jobs
	test \$(grep -c \"standby FAILED.*class standby\" jobs) = 2
	test \$(grep -c \"standby RUN\" jobs) = 2
	b=\$(flux jobs -ano \"{id.f58} {queue}\" | grep batch | cut -d\" \" -f1)
	for v in \$(grep FAILED jobs | cut -d\" \" -f1); do
		flux job eventlog \$v | grep exception >log
		cat log
		grep \"type=.preempt. severity=1.*will end at .* for a job of batch\" log
		grep \"type=.preempt. severity=0.*preempted for \$b (batch); ran\" log
	done
	flux sched stats | jq -e \".preemptions[0].victims == 2 and .preemptions[0].useless == 0\"
	flux sched preemptions | tee out
	grep standby out
	" --config-path=conf
'
done

test_expect_success 'a job that is canceled in the grace costs nobody an end' '
	instance "
	for i in 1 2 3 4; do v=\$(standby); flux job wait-event -t 30 \$v start; done
	b=\$(flux submit --queue=batch -N1 -x -t 60s true)
	wait_log \"severity=1\" \$v
	flux sched preemptions >out
	cat out
	grep \"\$b *batch *warned\" out
	admin flux sched preemptions >seen
	diff out seen
	! admin flux cancel \$b
	! admin flux cancel \$v
	flux cancel \$b
	wait_log \"will not be ended now: \$b is gone\" \$v
	test \"\$(flux jobs -no {status} \$v)\" = RUN
	" --config-path=conf-slow
'

test_expect_success 'over a reload in the grace the job has its place, and nobody else ends' '
	instance "
	for i in 1 2 3 4; do v=\$(standby); flux job wait-event -t 30 \$v start; done
	b=\$(flux submit --queue=batch -N1 -x -t 60s sleep 5)
	wait_log \"severity=1\" \$v
	flux module reload sched-backfill
	flux job wait-event -t 30 \$b start
	test \$(flux jobs -f failed -no {id} | wc -l) = 1
	test \"\$(flux jobs -ano {status} \$v)\" = FAILED
	test \"\$(flux jobs -no {ranks} \$b)\" = \"\$(flux jobs -ano {ranks} \$v)\"
	test \$(flux job eventlog \$v | grep -c severity=1) = 1
	" --config-path=conf
'

test_expect_success 'a job that starts in promised time is ended before it; over a reload, too' '
	cp -r conf conf-into && sed -i "s/^rank.*/into-promises = true/" conf-into/preemption.toml &&
	instance "
	a=\$(flux submit --queue=batch -N2 -x -t 25s sleep 24)
	flux job wait-event -t 30 \$a start
	b=\$(flux submit --queue=batch -N4 -x -t 60s true)
	for i in \$(seq 100); do flux sched explain \$b >out && break; sleep 0.1; done
	v=\$(standby 2)
	flux job wait-event -t 30 \$v start
	flux sched preemptions >out
	cat out
	grep \"\$b *runs .*\$v *standby\" out
	flux sched explain \$b | grep \"1 job of standby runs in its time; ended at\"
	flux jobs -no \"{annotations.sched.t_preempt}\" \$v | grep \"[0-9]\"
	guest flux sched preemptions --json | jq -e \".borrowers == []\"
	flux module reload sched-backfill
	flux job wait-event -t 40 \$b start
	flux job wait-event -t 5 \$b clean
	flux job eventlog \$v >log
	cat log
	grep \"type=.preempt. severity=1.*will end at .* for a job of batch\" log
	grep \"type=.preempt. severity=0.*preempted for \$b (batch); ran\" log
	test \$(grep -c severity=1 log) = 1
	" --config-path=conf-into
'

test_expect_success 'mode="log" tells whom it would end, and ends nobody' '
	instance "
	for i in 1 2 3 4; do v=\$(standby); flux job wait-event -t 30 \$v start; done
	b=\$(flux submit --queue=batch -N1 -x -t 60s true)
	for i in \$(seq 100); do flux dmesg | grep -q \"mode=log\" && break; sleep 0.1; done
	flux dmesg | grep \"preemption (mode=log): \$b could start by ending \$v: 1 job of standby\"
	test \$(flux jobs -f running -no {id} | wc -l) = 4
	" --config-path=conf-log
'

test_expect_success 'a dry run and explain say who would end; guests are named own jobs only' '
	instance "
	for i in 1 2 3 4; do v=\$(standby); flux job wait-event -t 30 \$v start; done
	b=\$(flux submit --queue=batch -N2 -x -t 60s true)
	flux job wait-event -t 30 \$b priority
	flux sched preempt --dry-run \$b >out
	cat out
	grep \"\$b could start now by ending 2 jobs of standby (0.0 node-hours)\" out
	grep \"\$v *standby\" out
	flux sched explain \$b | grep \"could start now by ending 2 jobs of standby\"
	! guest flux sched preempt --dry-run \$b 2>err
	grep \"is not a pending job\" err
	guest flux sched preemptions --json | jq -e \".preemptions == []\"
	admin flux sched preempt --dry-run \$b >seen
	diff out seen
	! admin flux sched preempt \$b
	! flux sched preempt \$b 2>err
	grep dry-run err
	big=\$(flux submit --queue=batch -N4 -x -t 60s true)
	flux job wait-event -t 30 \$big priority
	flux sched preempt --dry-run \$big >out
	cat out
	grep \"takes from nobody: 4 jobs of standby would have to end, of which 3 may\" out
	test \$(flux jobs -f running -no {id} | wc -l) = 4
	" --config-path=conf-wait
'

test_expect_success 'a bad table is one line, and the one before stays in force' '
	instance "
	sed -i \"s/^rank.*/rank = -1/\" conf-bad/preemption.toml
	flux config reload
	flux dmesg | grep \"configuration: .preemption.standby. rank=-1: expected a whole number\"
	for i in 1 2 3 4; do v=\$(standby); flux job wait-event -t 30 \$v start; done
	flux run --queue=batch -N1 -x -t 60s true
	" --config-path=conf-bad
'

test_done
