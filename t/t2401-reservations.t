#!/bin/sh

test_description='reservations over the life of an instance: its configuration, restarts, ends of windows

Instances of four nodes of two cores.
'

. "$(dirname "$0")/sharness.sh"

command -v jq >/dev/null || { skip_all="no jq"; test_done; }

# instance SCRIPT [OPTION of flux start ...]: run a script, with sched-backfill, in an instance
instance() {
	script=$1
	shift
	cat >script.sh <<-END
	set -e
	test "\$(flux module list | grep -c sched-backfill)" = 1 || {
		flux module remove sched-simple
		flux module load sched-backfill
	}
	$script
	# rc3 unloads the modules that rc1 has loaded.
	flux module list | grep -o "^ *sched-[a-z]*" | xargs -n1 flux module remove
	flux module load sched-simple
	END
	run_timeout 400 flux start --test-size=4 "$@" \
	    "-Sbroker.rc1_path=flux modprobe run '$FLUX_TEST_LIB/rc/rc1-job.py'" \
	    "-Sbroker.rc3_path=flux modprobe run '$FLUX_TEST_LIB/rc/rc3.py'" \
	    -Slog-stderr-level=3 -Slog-filename=broker.log -Slog-forward-level=7 sh script.sh
}

test_expect_success 'a configuration with reservations' '
	mkdir conf &&
	cat >conf/reservations.toml <<-EOT
	[reservations.weekly]
	start = "2030-01-07T08:00:00+01:00"
	duration = "4h"
	every = "1w"
	zone = "Europe/Berlin"
	nodes = 2

	[reservations.yearly]
	start = "2031-05-01T08:00"
	duration = 86400
	zone = "UTC"
	hosts = "$(hostname)"
	users = ["root", "2100000001"]
	at_end = "run"

	[reservations.soon]
	start = "tomorrow 08:00"
	duration = "4h"
	nodes = 1

	[reservations.bare]
	start = 2031-05-01T08:00:00+02:00
	duration = "4h"
	nodes = 1

	[reservations.odd]
	start = "2031-05-01"
	duration = "4h"
	nodes = 1
	colour = "red"
	EOT
'
test_expect_success 'an instance with these and others' '
	instance "
		flux sched reservations --utc >listed
		flux sched reservations --json >listed.json
		flux dmesg | grep configuration: >log
		flux sched reserve own --start=+10m --duration=1h --nodes=1
		sed -i /^nodes/s/2/3/ conf/reservations.toml
		sed -i s/yearly/maint/ conf/reservations.toml
		flux config reload
		flux sched reservations >reloaded
		flux module reload sched-backfill
		flux sched reservations >again
		flux sched reserve short --start=+1s --duration=20s --nodes=1 --users=\$(id -u) --at-end=cancel >made
		flux sched reserve long --start=+1s --duration=20s --nodes=1 --users=\$(id -u) --at-end=run >>made
		until test \$(flux sched reservations | grep -c \" active \") -eq 2; do sleep 0.1; done
		one=\$(flux submit -N1 -t 1h --setattr=system.reservation=short sleep inf)
		two=\$(flux submit -N1 -t 1h --setattr=system.reservation=long sleep inf)
		other=\$(flux submit -N3 --exclusive -t 1m true)
		flux job wait-event -vt 120 \$one clean
		flux job wait-event -t 120 \$other alloc
		flux job eventlog \$one >ended
		flux jobs -no {state} \$two >went_on
		flux cancel \$two
		flux sched reservations >after
	" --config-path=conf && cat listed log reloaded made ended after
'
test_expect_success 'flux start has read them; an error names its table and key' '
	grep "weekly *planned *2030-01-07 07:00 *4h *2 .* 1w *no jobs" listed &&
	grep "yearly *planned *2031-05-01 08:00 *1d *4 .* users root,2100000001" listed &&
	grep "\[reservations.soon\] start=.tomorrow 08:00. depends on when it is read: give a date" log &&
	grep "\[reservations.bare\] start=2031-05-01T08:00:00: write it in quotes" log &&
	grep "\[reservations.odd\] unknown key .colour.: expected" log &&
	jq -e ".reservations | length == 2 and all(.configured)" listed.json
'
test_expect_success 'flux config reload has applied the changes of the files, and nothing else' '
	grep "own *planned" reloaded && grep "weekly *planned .* 4h *3 " reloaded &&
	grep "maint *planned" reloaded && test_must_fail grep yearly reloaded &&
	test_cmp reloaded again
'
test_expect_success 'at the end members were ended, or went on, as was said' '
	grep "short is reserved" made && grep "are ended then" made && grep "go on as ordinary jobs" made &&
	grep "exception.*timeout" ended && grep RUN went_on &&
	grep "short *over" after
'
test_expect_success REAL_FLUX 'reservations outlive a restart of the instance' '
	mkdir state &&
	instance "
		flux sched reserve tuesday --start=+2h --duration=1h --nodes=4 --users=root --every=1w
		flux sched reserve gone --start=+1h --duration=1h --nodes=1
		flux sched unreserve gone
		flux sched reservations --json | jq .reservations >before.json
	" -Sstatedir=$PWD/state &&
	instance "
		flux sched reservations --json | jq .reservations >after.json
		flux queue start
		long=\$(flux submit -N4 -t 4h true)
		flux sched explain \$long
		tries=0
		until flux jobs -no {annotations.sched.reason_pending} \$long | grep \"before reservation tuesday\"; do
			tries=\$((tries + 1)); test \$tries -lt 600; sleep 0.1
		done
		flux cancel \$long
	" -Sstatedir=$PWD/state &&
	jq -e "length == 1" after.json && test_cmp before.json after.json
'
command -v script >/dev/null && test_set_prereq SCRIPT
test_expect_success SCRIPT 'flux sched top on a terminal: q ends it, and a signal, and the screen is as it was' '
	cat >top.sh <<-EOT &&
	exec 3<&0
	flux sched top -d 0.2s <&3 & top=\$!
	until grep -q "4 free" \$1; do sleep 0.1; done
	test \$1 = quit || kill \$top
	touch \$1.shown
	wait \$top
	touch \$1.over
	EOT
	instance "
		for name in quit term; do
			{
				until test -f \$name.shown; do sleep 0.1; done
				test \$name = term || printf q
				until test -f \$name.over; do sleep 0.1; done
			} | TERM=xterm script -qefc \"sh top.sh \$name\" \$name >/dev/null
		done
	" &&
	for name in quit term; do
		tr "\033" E <$name | grep "E.?25hE.?1049l" >/dev/null || return 1
	done
'

test_done
