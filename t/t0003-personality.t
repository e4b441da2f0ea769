#!/bin/sh

test_description='test_under_flux: the modules and resources of each personality

The scripts of this directory rely on them; on a real Flux they are the same.
'

. "$(dirname "$0")/sharness.sh"

modules() {
	flux module list | awk '!/^Module/{print $1}' | sort | tr '\n' ' '
}

cat >personality.t <<'EOF'
#!/bin/sh
test_description="modules and resources"
. "$OUTER/sharness.sh"
test_under_flux "$SIZE" $PERSONALITY
test_expect_success "look" '
	flux module list >modules &&
	awk "!/^Module/{print \$1}" modules | sort | tr "\n" " " >"$OUT/modules" &&
	flux getattr size >"$OUT/size" &&
	{ flux resource list >"$OUT/resources" || true; }
'
test_done
EOF

# The inner script needs a directory with the library beside it; rc scripts come from there too.
test_expect_success 'set up' '
	mkdir -p src/t b/t &&
	cp -R "$SHARNESS_TEST_SRCDIR"/sharness.sh "$SHARNESS_TEST_SRCDIR"/sharness.d "$SHARNESS_TEST_SRCDIR"/rc \
		"$SHARNESS_TEST_SRCDIR"/scripts src/t/ &&
	ln -s "$FLUX_SOURCE_DIR/src" src/src &&
	cp personality.t src/t/ &&
	if test -f "$FLUX_BUILD_DIR/t/config.sh"; then
		grep -v FLUX_BUILD_DIR= "$FLUX_BUILD_DIR/t/config.sh" | grep -v FLUX_SOURCE_DIR= >b/t/config.sh
	fi
'
OUTER=$PWD/src/t
OUT=$PWD
export OUTER OUT

look() {
	(
		PERSONALITY=$1 SIZE=$2
		FLUX_BUILD_DIR=$PWD/b
		export PERSONALITY SIZE FLUX_BUILD_DIR
		unset TEST_UNDER_FLUX_ACTIVE SHARNESS_TEST_DIRECTORY SHARNESS_TRASH_DIRECTORY
		run_timeout 400 sh src/t/personality.t -v >inner.out 2>&1
	)
	look_rc=$?
	# Indented: its results are not ours.
	sed "s/^/    /" inner.out
	return $look_rc
}

test_expect_success 'minimal: the broker alone' '
	look minimal 2 &&
	printf "config connector-local groups overlay rexec " >expected &&
	test_cmp expected modules &&
	echo 2 >expected &&
	test_cmp expected size
'
test_expect_success 'kvs: the key-value store' '
	look kvs 1 &&
	printf "config connector-local content content-sqlite groups heartbeat kvs kvs-watch overlay rexec " >expected &&
	test_cmp expected modules
'
test_expect_success 'job: 2 cores on each rank, under the name of this host' '
	look job 4 &&
	printf "%s " config connector-local content content-sqlite groups heartbeat job-exec job-info job-ingest job-list \
		job-manager kvs kvs-watch overlay resource rexec sched-simple >expected &&
	test_cmp expected modules &&
	grep "free *4 *8 *0 $(hostname),$(hostname),$(hostname),$(hostname)" resources
'
test_expect_success 'job: cores, GPUs and job-exec as the environment says' '
	TEST_UNDER_FLUX_CORES_PER_RANK=16 TEST_UNDER_FLUX_GPUS_PER_RANK=4 TEST_UNDER_FLUX_NO_JOB_EXEC=y look job 2 &&
	grep "free *2 *32 *8 " resources &&
	test_must_fail grep job-exec modules
'
test_expect_success 'full: everything' '
	look full 1 &&
	grep "cron" modules && grep "job-exec" modules && grep "sched-simple" modules
'
test_expect_success 'a script that leaves a module behind fails' '
	sed "s/^test_done/test_expect_success load \"flux module remove sched-simple \&\& flux module load sched-fifo\"\ntest_done/" \
		personality.t >src/t/personality.t &&
	test_must_fail look job 1 &&
	grep "left modules behind: sched-fifo" inner.out
'

test_expect_success 'the example of the guide (doc/guide/testing) runs as printed' '
	cp "$FLUX_SOURCE_DIR"/doc/examples/first.* . &&
	SHARNESS_TEST_DIRECTORY="$PWD" FLUX_TEST_LIB="$FLUX_SOURCE_DIR/t" sh ./first.t >example.out 2>&1 || { cat example.out; false; } &&
	grep "^# passed all 4" example.out
'

test_done
