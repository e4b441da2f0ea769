#!/bin/sh

test_description='instances in jobs of a real Flux get their scheduler from the set-up of the site

The site has the two files of doc/examples/nested; the environment of the user names nothing of the library. Changes
of the job in the parent (another end, a lost broker) reach the plan of the instance in it.
'

. "$(dirname "$0")/sharness.sh"
test -n "$REAL_FLUX" || { skip_all="no real Flux: the embedded instance runs no other in its jobs"; test_done; }
command -v jq >/dev/null || { skip_all="no jq"; test_done; }
test_under_flux 4 full

FLUX_URI_RESOLVE_LOCAL=t
export FLUX_URI_RESOLVE_LOCAL
parent=$FLUX_URI

# Run as a user without this library in the environment. FLUX_SHELL_RC_PATH is in the place of /etc/flux/shell/lua.d.
as_user() {
	env -u FLUX_PYTHONPATH_PREPEND -u FLUX_MODULE_PATH_PREPEND -u FLUX_MODULE_PATH -u PYTHONPATH \
	    -u FLUX_MODPROBE_PATH_APPEND FLUX_SHELL_RC_PATH="$(pwd)/shell" "$@"
}
# of_job ID FILTER: the result of jq on the annotations of a job
of_job() {
	flux job list-ids "$1" | jq -r ".annotations.sched | $2"
}
# ends: when the instance that is asked ends, in whole seconds
ends() {
	flux dmesg | sed -n "s/.*updated expiration to \([0-9]*\).*/\1/p" | tail -1
}
# estimate ID TIME: the job is told that it starts at TIME, to the second
estimate() {
	test_wait_until "test \"\$(of_job $1 '.t_estimate // 0 | floor')\" = $2"
}

test_expect_success 'the site puts its two files in place' '
	mkdir -p shell nested/modprobe.d &&
	sed -e "s|^local lib = .*|local lib = \"$FLUX_SOURCE_DIR/src\"|" \
	    -e "s|^local nested = .*|local nested = \"$(pwd)/nested\"|" \
	    "$FLUX_SOURCE_DIR"/doc/examples/nested/flux-scheduler.lua >shell/flux-scheduler.lua &&
	grep "$FLUX_SOURCE_DIR" shell/flux-scheduler.lua && grep "$(pwd)/nested" shell/flux-scheduler.lua &&
	cp "$FLUX_SOURCE_DIR"/doc/examples/nested/nested.toml nested/modprobe.d/
'
test_expect_success 'flux batch: the instance has our sched-backfill' '
	cat >batch.sh <<-EOT &&
	#!/bin/sh
	flux module list -l
	flux run -n1 echo ran
	EOT
	chmod +x batch.sh &&
	as_user flux batch -n1 --output=batch.out batch.sh >batch.id &&
	flux job wait-event -t 120 $(cat batch.id) clean &&
	cat batch.out && grep "$FLUX_SOURCE_DIR/src/modules/sched-backfill/" batch.out && grep ran batch.out
'
test_expect_success 'another scheduler is selected as usual, and is ours too' '
	as_user flux batch -n1 --output=other.out --conf=modules.alternatives.sched=\"sched-simple\" batch.sh >other.id &&
	flux job wait-event -t 120 $(cat other.id) clean &&
	cat other.out && grep "$FLUX_SOURCE_DIR/src/modules/sched-simple/" other.out && grep ran other.out
'
test_expect_success 'an instance in such an instance has it as well' '
	cat >deeper.sh <<-EOT &&
	#!/bin/sh
	flux batch -n1 --output=deeper.out ./batch.sh
	flux queue idle
	EOT
	chmod +x deeper.sh &&
	as_user flux batch -n1 deeper.sh >deeper.id &&
	flux job wait-event -t 120 $(cat deeper.id) clean &&
	cat deeper.out && grep "$FLUX_SOURCE_DIR/src/modules/sched-backfill/" deeper.out && grep ran deeper.out
'
test_expect_success 'one of two brokers, for an hour: a job is promised its start at the end of the instance' '
	as_user flux batch -N2 -t 60m --wrap sleep inf >child.id && child=$(cat child.id) &&
	flux job wait-event -t 120 $child memo &&
	FLUX_URI=$(flux uri $child) && export FLUX_URI &&
	test_wait_until "flux module list | grep -q sched-backfill" &&
	all=$(flux submit -N2 -x sleep inf) && flux job wait-event -t 120 $all alloc &&
	job=$(flux submit -n1 -t 5m true) &&
	end=$(ends) && estimate $job $end &&
	test "$(of_job $job .t_estimate_kind)" = promised
'
test_expect_success 'the parent gives it half an hour more, and so do promises' '
	FLUX_URI=$parent flux update $child duration=+30m &&
	test_wait_until "test \"\$(ends)\" = $((end + 1800))" &&
	estimate $job $((end + 1800))
'
test_expect_success 'and takes it away again' '
	FLUX_URI=$parent flux update $child duration=-40m &&
	test_wait_until "test \"\$(ends)\" = $((end - 600))" &&
	estimate $job $((end - 600))
'
test_expect_success 'a broker is lost: a job that needs both is denied, a job on the other is promised its start' '
	flux cancel $job $all && flux job wait-event -t 120 $all clean &&
	for rank in 0 1; do
		flux submit -N1 -x -t 10m --requires=rank:$rank sleep inf || return 1
	done >both.ids &&
	for id in $(cat both.ids); do flux job wait-event -t 120 $id alloc || return 1; done &&
	two=$(flux submit -N2 -t 1m true) &&
	test_wait_until "test \"\$(of_job $two .t_estimate_kind)\" = promised" &&
	flux overlay disconnect 1 &&
	flux job wait-event -t 120 $two clean && flux jobs -no "{exception.type}: {exception.note}" $two >note &&
	cat note && grep "^alloc: " note &&
	one=$(flux submit -n1 -t 1m true) &&
	test_wait_until "test \"\$(of_job $one .t_estimate_kind)\" = promised" &&
	test "$(flux resource list -s all -no {nnodes})" = 1 &&
	test "$(flux module stats sched-backfill | jq .errors)" = 0
'
test_expect_success 'the job ends' '
	FLUX_URI=$parent && flux cancel $child && flux job wait-event -t 120 $child clean
'
test_done
