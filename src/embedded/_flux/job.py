"""Jobs: submitting them, waiting for them, their events and results, and the formats of ids and states."""

import errno
import json
import os

from _flux.cdata import bytes_of
from _flux.function import failure, function, functions
from _flux.futures import ask, rpc, send
from _flux.kvs import cancel
from flux_engine.formats import jobid, states
from flux_engine.kernel.future import RPC_STREAMING

# -- ids ---------------------------------------------------------------------------------------------------


@function
def flux_job_id_parse(s):
    """int flux_job_id_parse (const char *s, out flux_jobid_t *id)"""
    try:
        return jobid.decode(s)
    except ValueError:
        raise failure(errno.EINVAL) from None


@function
def flux_job_id_encode(id, type, buf, bufsz):
    """int flux_job_id_encode (flux_jobid_t id, opt const char *type, char *buf, size_t bufsz)"""
    encode = jobid.FORMS.get((type or "dec").lower())
    if encode is None:
        # Also for two forms, words and emoji, whose tables are in no RFC.
        raise failure(errno.EPROTO)
    _write(buf, bufsz, encode(id))


def _write(buf, size, text):
    """Store a text in a buffer of `size` bytes; returns its length."""
    value = bytes_of(text)
    if len(value) >= min(size, buf.size):
        raise failure(errno.EOVERFLOW)
    buf.value = value
    return len(value)


def _write_key(buf, size, *parts):
    return _write(buf, size, ".".join(part for part in parts if part))


functions(
    {
        "int flux_job_kvs_key (char *buf, int bufsz, flux_jobid_t id, opt const char *key)":
            lambda buf, size, id, key: _write_key(buf, size, jobid.kvs_dir(id), key),
        "int flux_job_kvs_guest_key (char *buf, int bufsz, flux_jobid_t id, opt const char *key)":
            lambda buf, size, id, key: _write_key(buf, size, jobid.kvs_dir(id), "guest", key),
    }
)  # fmt: skip


# -- states and results ------------------------------------------------------------------------------------

_STATES = {state: (name, name[0]) for state, name in states.NAMES.items()}
_STATES.update({14: ("PENDING", "PD"), 48: ("RUNNING", "RU"), 62: ("ACTIVE", "A")})
_RESULTS = {1: ("COMPLETED", "CD"), 2: ("FAILED", "F"), 4: ("CANCELED", "CA"), 8: ("TIMEOUT", "TO")}


def _name(table, number, fmt):
    """A name in the form selected by a format's first letter: L, l, S or s; L for none."""
    fmt = (fmt or "L")[:1]
    long, short = table.get(number, ("(unknown)", "?"))
    name = short if fmt in "sS" and fmt else long
    return name.lower() if fmt in "sl" and fmt else name


functions(
    {
        "const char *flux_job_statetostr (flux_job_state_t state, opt const char *fmt)":
            lambda state, fmt: _name(_STATES, state, fmt),
        "const char *flux_job_resulttostr (flux_job_result_t result, opt const char *fmt)":
            lambda result, fmt: _name(_RESULTS, result, fmt),
    }
)  # fmt: skip


#: Whether a parallel debugger has attached (MPIR); the bindings keep it here.
_debugged = [0]

functions(
    {
        "int get_mpir_being_debugged (void)": lambda: _debugged[0],
        "void set_mpir_being_debugged (int value)": lambda value: _debugged.__setitem__(0, value),
    }
)


# -- requests ----------------------------------------------------------------------------------------------

#: Attributes of a job that make its result.
RESULT = (
    "t_submit", "t_run", "t_cleanup", "waitstatus", "result", "exception_occurred", "exception_type", "exception_severity",
    "exception_note",
)  # fmt: skip


def _raise(h, id, type, severity, note):
    note = {} if note is None else {"note": note}
    return send(h, "job-manager.raise", {"id": id, "type": type, "severity": severity, **note})


def _watch(h, id, path, flags):
    payload = {"id": id, "path": path, "flags": flags}
    return send(h, "job-info.eventlog-watch", payload, RPC_STREAMING)


functions(
    {
        # The owner of an instance needs no signature (RFC 15), and there are no other users here.
        "flux_future_t *flux_job_submit (flux_t *h, const char *jobspec, int urgency, int flags)":
            lambda h, jobspec, urgency, flags:
                send(h, "job-ingest.submit", {"jobspec": jobspec, "urgency": urgency, "flags": flags}),
        "int flux_job_submit_get_id (flux_future_t *f, out opt flux_jobid_t *value)": lambda f: rpc(f).field("id", int),
        "flux_future_t *flux_job_wait (flux_t *h, flux_jobid_t id)":
            lambda h, id: send(h, "job-manager.wait", {"id": id}),
        "int flux_job_wait_get_id (flux_future_t *f, out opt flux_jobid_t *value)": lambda f: rpc(f).field("id", int),
        "int flux_job_wait_get_status (flux_future_t *f, out opt bool *success, out opt const char **errstr)":
            lambda f: (rpc(f).field("success", bool), f.body().get("errstr", "")),
        "flux_future_t *flux_job_raise (flux_t *h, flux_jobid_t id, const char *type, int severity, opt const char *note)":
            _raise,
        "flux_future_t *flux_job_cancel (flux_t *h, flux_jobid_t id, opt const char *reason)":
            lambda h, id, reason: _raise(h, id, "cancel", 0, reason),
        "flux_future_t *flux_job_kill (flux_t *h, flux_jobid_t id, int signum)":
            lambda h, id, signum: send(h, "job-manager.kill", {"id": id, "signum": signum}),
        "flux_future_t *flux_job_event_watch (flux_t *h, flux_jobid_t id, const char *path, int flags)": _watch,
        "int flux_job_event_watch_get (flux_future_t *f, out opt const char **value)": lambda f: rpc(f).field("event", str),
        "int flux_job_event_watch_cancel (flux_future_t *f)":
            lambda f: cancel(rpc(f), "job-info.eventlog-watch-cancel"),
        # The C library makes the result from the job's events.
        "flux_future_t *flux_job_result (flux_t *h, flux_jobid_t id, int flags)":
            lambda h, id, flags:
                send(h, "job-list.list-id", {"id": id, "attrs": list(RESULT), "state": states.INACTIVE}),
        "int flux_job_result_get (flux_future_t *f, out const char **json_str)":
            lambda f: json.dumps(rpc(f).field("job", dict), separators=(",", ":")),
        # The submitted jobspec (key J) is kept without an envelope: there are no signatures here.
        "char *flux_unwrap_string (const char *in, bool verify, opt uint32_t *userid, opt flux_error_t *error)":
            lambda text, verify, userid, error: text,
    }
)  # fmt: skip


@function
def flux_job_timeleft(h, error):
    """int flux_job_timeleft (flux_t *h, flux_error_t *error, out double *timeleft)"""
    # Seconds until the job of FLUX_JOB_ID expires, or the instance does; 0.0 if it does not run, infinite without a limit.
    id = os.environ.get("FLUX_JOB_ID")
    try:
        if id is None:
            expiration = ask(h, "resource.status", {})["R"]["execution"]["expiration"]
        else:
            payload = {"id": jobid.decode(id), "attrs": ["state", "expiration"]}
            job = ask(h, "job-list.list-id", payload)["job"]
            if job["state"] not in (states.RUN, states.CLEANUP):
                return 0.0
            expiration = job.get("expiration", 0.0)
    except (OSError, ValueError) as exc:
        error[0].write(f"{id}: no such jobid" if id else str(exc))
        raise failure(errno.ENOENT) from None
    return max(0.0, expiration - h.task.kernel.time) if expiration else float("inf")
