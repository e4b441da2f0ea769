"""A job as ``flux jobs`` shows it, from the attributes that job-list gives (RFC 43)."""

from flux_embedded.cmd.lib import times
from flux_embedded.cmd.lib.follow import exit_code
from flux_embedded.formats import jobid as encodings
from flux_embedded.formats import states

#: field -> heading, in the order of ``flux jobs --help``
HEADINGS = {
    "id": "JOBID",
    "id.f58": "JOBID",
    "id.f58plain": "JOBID",
    "id.dec": "JOBID",
    "id.hex": "JOBID",
    "id.dothex": "JOBID",
    "id.kvs": "JOBID",
    "userid": "UID",
    "username": "USER",
    "urgency": "URG",
    "priority": "PRI",
    "state": "STATE",
    "state_single": "S",
    "name": "NAME",
    "cwd": "CWD",
    "queue": "QUEUE",
    "project": "PROJECT",
    "bank": "BANK",
    "ntasks": "NTASKS",
    "ncores": "NCORES",
    "duration": "DURATION",
    "nnodes": "NNODES",
    "ranks": "RANKS",
    "nodelist": "NODELIST",
    "success": "SUCCESS",
    "result": "RESULT",
    "result_abbrev": "RS",
    "t_submit": "T_SUBMIT",
    "t_depend": "T_DEPEND",
    "t_priority": "T_PRIORITY",
    "t_sched": "T_SCHED",
    "t_run": "T_RUN",
    "t_cleanup": "T_CLEANUP",
    "t_inactive": "T_INACTIVE",
    "runtime": "RUNTIME",
    "status": "STATUS",
    "status_abbrev": "ST",
    "waitstatus": "WSTATUS",
    "returncode": "RC",
    "exception.occurred": "EXCEPTION-OCCURRED",
    "exception.severity": "EXCEPTION-SEVERITY",
    "exception.type": "EXCEPTION-TYPE",
    "exception.note": "EXCEPTION-NOTE",
    "expiration": "EXPIRATION",
    "t_remaining": "T_REMAINING",
    "annotations": "ANNOTATIONS",
    "annotations.sched.t_estimate": "T_ESTIMATE",
    "annotations.sched.reason_pending": "REASON",
    "annotations.sched.resource_summary": "RESOURCES",
    "sched": "SCHED",
    "sched.t_estimate": "T_ESTIMATE",
    "sched.reason_pending": "REASON",
    "sched.resource_summary": "RESOURCES",
    "user": "USER",
    "dependencies": "DEPENDENCIES",
    "contextual_info": "INFO",
    "contextual_time": "TIME",
    "inactive_reason": "INACTIVE-REASON",
}

ATTRS = (
    "userid urgency priority state name cwd queue project bank ntasks ncores duration nnodes ranks "
    "nodelist success result t_submit t_depend t_priority t_sched t_run t_cleanup t_inactive "
    "waitstatus exception_occurred exception_severity exception_type exception_note expiration "
    "annotations dependencies"
).split()

_users = {}


def is_annotation(name):
    """Whether a field name reaches into the annotations."""
    return name.startswith(("annotations.", "sched.", "user."))


def username(userid):
    if userid not in _users:
        import pwd

        try:
            _users[userid] = pwd.getpwuid(userid).pw_name
        except KeyError:
            _users[userid] = str(userid)
    return _users[userid]


class JobInfo:
    """One job.

    Args:
        job: attributes.
        now: the instance's time, epoch seconds.
    """

    def __init__(self, job, now):
        self.job = job
        self.now = now

    def get(self, name):
        """The value of a field; ``""`` for what this job does not have."""
        method = getattr(self, "_" + name.replace(".", "_"), None)
        if method is not None:
            value = method()
        elif name.startswith("annotations.") or is_annotation(name):
            path = name[len("annotations.") :] if name.startswith("annotations.") else name
            value = self._annotation(path)
        elif name in ("sched", "user"):
            value = self._annotation(name)
        else:
            value = self.job.get(name)
        return "" if value is None else value

    @property
    def state(self):
        return self.job.get("state", 0)

    def _annotation(self, path):
        value = self.job.get("annotations")
        for key in path.split("."):
            if not isinstance(value, dict):
                return None
            value = value.get(key)
        return value

    # the names of these methods are the fields' names

    def _id(self):
        return encodings.f58(self.job["id"])

    _id_f58 = _id

    def _id_f58plain(self):
        return encodings.f58plain(self.job["id"])

    def _id_dec(self):
        return str(self.job["id"])

    def _id_hex(self):
        return f"{self.job['id']:#x}"

    def _id_dothex(self):
        return encodings.dothex(self.job["id"])

    def _id_kvs(self):
        return encodings.kvs_dir(self.job["id"])

    def _username(self):
        userid = self.job.get("userid")
        return None if userid is None else username(userid)

    def _state(self):
        return states.NAMES.get(self.state, "")

    def _state_single(self):
        return states.STATE_LETTERS.get(self.state, "")

    def _result(self):
        return states.RESULT_NAMES[self.job["result"]] if "result" in self.job else None

    def _result_abbrev(self):
        return states.RESULT_LETTERS[self.job["result"]] if "result" in self.job else None

    def _status(self):
        return self._result() or self._state()

    def _status_abbrev(self):
        return self._result_abbrev() or self._state_single()

    def _runtime(self):
        start = self.job.get("t_run")
        if not start:
            return 0.0
        return max(0.0, (self.job.get("t_cleanup") or self.now) - start)

    def _t_remaining(self):
        if not self.state & states.RUNNING or not self.job.get("expiration"):
            return None
        return max(0.0, self.job["expiration"] - self.now)

    def _returncode(self):
        status = self.job.get("waitstatus")
        if status is not None:
            return -(status & 0x7F) if status & 0x7F else exit_code(status)
        if self.state == states.INACTIVE and self._exception_severity() == 0:
            return -128
        return None

    def _exception_occurred(self):
        return bool(self.job.get("exception_occurred", False))

    def _exception_severity(self):
        return self.job.get("exception_severity")

    def _exception_type(self):
        return self.job.get("exception_type")

    def _exception_note(self):
        return self.job.get("exception_note")

    def _dependencies(self):
        return ",".join(self.job.get("dependencies") or ())

    def _contextual_time(self):
        return self.job.get("duration", 0) if self.state & states.PENDING else self._runtime()

    def _contextual_info(self):
        if not self.state & states.PENDING:
            return self.job.get("nodelist")
        if self.state == 2:
            return "depends:" + self._dependencies()
        if self.state == 4:
            return "priority-wait"
        if self.job.get("urgency") == 0 or self.job.get("priority") == 0:
            return "held"
        estimate = self._annotation("sched.t_estimate")
        if estimate:
            left = estimate - self.now
            return "eta:now" if left < 1 else "eta:" + times.fsd(left)
        return None

    def _inactive_reason(self):
        if self.state != states.INACTIVE:
            return None
        result, note = self.job.get("result"), self.job.get("exception_note")
        if result == 4:
            return f"Canceled: {note}" if note else "Canceled"
        if result == 8:
            return "Timeout"
        status = self.job.get("waitstatus")
        if self.job.get("exception_occurred") and self._exception_severity() == 0:
            if self._exception_type() != "exec" or status is None:
                text = f"Exception: type={self._exception_type()}"
                return f"{text} note={note}" if note else text
        if status is None:
            return None
        code = exit_code(status)
        if status & 0x7F or code > 128:
            import signal

            name = signal.strsignal(code - 128)
            if name:
                return "Signal: " + name
        return f"Exit {code}"

    def to_dict(self):
        """The job for ``--json``."""
        job = dict(self.job)
        out = {}
        for name in ("t_depend", "t_priority", "t_sched", "t_run", "t_cleanup", "t_inactive"):
            if name in job:
                out[name] = job[name]
        for name in (
            "duration expiration name cwd queue project bank ntasks ncores nnodes priority ranks "
            "nodelist success waitstatus"
        ).split():
            if name in job:
                out[name] = job[name]
        out["id"] = job["id"]
        out["t_submit"] = job.get("t_submit", 0.0)
        out["state"] = self._state()
        for name in ("username", "userid", "urgency", "result", "runtime", "status", "returncode"):
            value = self.get(name)
            if value != "":
                out[name] = value
        out["dependencies"] = list(job.get("dependencies") or ())
        out["jobid"] = self._id()
        out["annotations"] = job.get("annotations") or {}
        out["exception"] = {"occurred": self._exception_occurred()}
        for name in ("severity", "type", "note"):
            if "exception_" + name in job:
                out["exception"][name] = job["exception_" + name]
        return out
