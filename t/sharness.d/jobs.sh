# What scripts about jobs have in common.

# started ID: wait until a job has its resources
started() {
	flux job wait-event -t 20 "$1" alloc >/dev/null
}
# reason ID: wait until a job is told why it waits, and print it
reason() {
	test_wait_until "test -n \"\$(flux jobs -no {annotations.sched.reason_pending} $1)\"" &&
	flux jobs -no "{annotations.sched.reason_pending}" $1
}
# guest COMMAND: as a user who owns nothing here
guest() {
	FLUX_HANDLE_USERID=9999 FLUX_HANDLE_ROLEMASK=0x2 "$@"
}
# admin COMMAND: as a user who is shown what belongs to others, and may change no more than a guest
admin() {
	FLUX_HANDLE_USERID=9998 FLUX_HANDLE_ROLEMASK=0xa "$@"
}
# explained_to_admins_only ID PATTERN: an admin is told why a job of another waits, a guest nothing of it
explained_to_admins_only() {
	admin flux sched explain $1 | grep "$2" &&
	test_must_fail guest flux sched explain $1 2>err && grep "is not a pending job" err
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
