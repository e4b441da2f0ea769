#!/bin/sh

test_description='a node in housekeeping is given to no job after a reload, even if queues were added in between

The history of flux-core#7794 and flux-sched#1558: of a job of four nodes rank 1 is in housekeeping; queues pall, which is stopped, and
pbatch are over all nodes; pdat over ranks 1-2 is configured, and the scheduler is reloaded.
'

. "$(dirname "$0")/sharness.sh"
test_under_flux 4 job

# put_R PROPERTIES: the inventory of the instance, with these (JSON), for the next scheduler.
put_R() {
    flux module remove $sched &&
        flux resource R >R.old &&
        jq -c ".execution.properties = $1" <R.old >R.new &&
        flux kvs put resource.R="$(cat R.new)" &&
        flux module reload -f resource noverify monitor-force-up &&
        flux module load $sched
}
queues() {
    cat <<-EOT
	[job-manager.housekeeping]
	command = [ "sh", "-c", "test \$(flux getattr rank) -eq 1 && sleep inf; true" ]
	release-after = "0s"
	[queues.pall]
	requires = [ "pall" ]
	[queues.pbatch]
	requires = [ "pbatch" ]
	EOT
    test -z "$1" || printf '[queues.%s]\nrequires = [ "%s" ]\n' $1 $1
}
# All schedulers of this package take over running jobs by the same code; on a real Flux, with its own job manager, each is tested.
former=sched-simple
for sched in ${REAL_FLUX:+sched-simple sched-fifo} sched-backfill; do
    test_expect_success "$sched: rank 1 of a job of four nodes is in housekeeping" '
	{ test $sched = sched-simple || { flux module remove $former && flux module load $sched; }; } && former=$sched &&
	put_R "{pall: \"0-3\", pbatch: \"0-3\"}" &&
	queues | flux config load && flux queue start pbatch && flux queue stop pall &&
	id=$(flux submit -q pbatch -N4 --exclusive true) &&
	flux job wait-event -t 120 $id clean &&
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 3"
    '
    test_expect_success "$sched: with another queue over it and a scheduler loaded anew nobody gets it" '
	put_R "{pall: \"0-3\", pbatch: \"0-3\", pdat: \"1-2\"}" &&
	queues pdat | flux config load && flux queue start pbatch && flux queue start pdat &&
	test $(flux resource list -s free -no {nnodes}) -eq 3 &&
	four=$(flux submit -q pbatch -N4 --exclusive true) &&
	two=$(flux submit -q pdat -N2 --exclusive true) &&
	three=$(flux submit -q pbatch -N3 --exclusive true) &&
	test_must_fail flux job wait-event -t 1 $four alloc &&
	flux cancel $four $two &&
	flux job wait-event -t 120 $three clean &&
	flux jobs -no {ranks} $three >ranks && grep "0,2-3" ranks &&
	! flux dmesg | grep -i "duplicate housekeeping"
    '
    test_expect_success "$sched: it comes back when housekeeping ends" '
	flux housekeeping kill --all &&
	test_wait_until "test \$(flux resource list -s free -no {nnodes}) -eq 4" &&
	flux config load </dev/null && flux queue idle --timeout=120 &&
	flux module stats $sched | jq -e ".errors == 0"
    '
done
test_expect_success 'the scheduler of before is loaded again' '
	flux module remove sched-backfill && flux module load sched-simple
'
test_done
