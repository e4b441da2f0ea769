# Functions of scripts about jobs.

# started ID: wait until a job has its resources
started() {
	flux job wait-event -t 120 "$1" alloc >/dev/null
}
# reason ID: wait until a job is told why it waits, and print it
reason() {
	test_wait_until "flux jobs -no {annotations.sched.reason_pending} $1 | grep ."
}
# guest COMMAND: run as a guest
guest() {
	FLUX_HANDLE_USERID=9999 FLUX_HANDLE_ROLEMASK=0x2 "$@"
}
# admin COMMAND: run with the role admin, which may see others' jobs but change no more than a guest
admin() {
	FLUX_HANDLE_USERID=9998 FLUX_HANDLE_ROLEMASK=0xa "$@"
}
