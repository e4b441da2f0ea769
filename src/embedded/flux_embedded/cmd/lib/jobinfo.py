"""A job as ``flux jobs`` shows it, from the attributes that job-list gives (RFC 43)."""

import signal
import time

from flux_embedded.cmd.lib import jobids, times
from flux_embedded.cmd.lib.follow import exit_code
from flux_embedded.formats import jobid as encodings
from flux_embedded.formats import states
from flux_embedded.formats.dotted import lookup_path

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
    "state_emoji": "STATE",
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
    "result_emoji": "RESULT",
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
    "status_emoji": "STATUS",
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
    "uri": "URI",
    "uri.local": "URI",
    "dependencies": "DEPENDENCIES",
    "contextual_info": "INFO",
    "contextual_time": "TIME",
    "inactive_reason": "INACTIVE-REASON",
}

#: what a job has that says nothing of them
DEFAULTS = dict.fromkeys(
    "t_depend t_priority t_sched t_run t_cleanup t_inactive duration expiration".split(), 0.0
)
#: what ``--json`` shows, in this order, if there is any
JSON_FIELDS = (
    *DEFAULTS,
    *"name cwd queue project bank ntasks ncores nnodes priority ranks nodelist success result "
    "waitstatus id t_submit t_remaining state username userid urgency runtime status "
    "returncode".split(),
)
UNSET = {*DEFAULTS, "t_submit", "t_remaining", "runtime"} - {"duration"}
#: as `HEADINGS` has them, for people
STATE_EMOJI = dict(
    zip(states.NAMES, "\U0001f381\U0001f6d1\U0001f6a6\U0001f4c5\U0001f3c3\U0001f5d1\U0001f480")
)
RESULT_EMOJI = dict(zip(states.RESULT_NAMES, "\U0001f600\U0001f4a9\U0001f4a5\u231b"))

ATTRS = (
    "userid urgency priority state name cwd queue project bank ntasks ncores duration nnodes ranks "
    "nodelist success result t_submit t_depend t_priority t_sched t_run t_cleanup t_inactive "
    "waitstatus exception_occurred exception_severity exception_type exception_note expiration "
    "annotations dependencies"
).split()

#: exit codes that shells give a meaning
SHELL_CODES = {
    126: "Command invoked cannot execute",
    127: "command not found",
    128: "Invalid argument to exit",
}

_users = {}


def is_annotation(name):
    """Whether a field name reaches into the annotations."""
    return name.startswith(("annotations.", "sched.", "user."))


def dependency(text):
    """A dependency as it is shown: the time a job waits for by the clock."""
    kind, _, value = text.partition("=")
    if kind != "begin-time":
        return text
    when = time.localtime(float(value))
    today = when[:3] == time.localtime()[:3]
    seconds = ":%S" if when.tm_sec else ""
    return "begin@" + time.strftime(("%H:%M" if today else "%b%d-%H:%M") + seconds, when)


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
        elif name.startswith("id."):
            value = jobids.ENCODERS[name[3:]](self.job["id"])
        elif name.startswith("exception."):
            value = self.job.get(name.replace(".", "_"))
        elif is_annotation(name):
            path = name[len("annotations.") :] if name.startswith("annotations.") else name
            value = self._annotation(path)
        elif name in ("sched", "user"):
            value = self._annotation(name)
        else:
            value = self.job.get(name, DEFAULTS.get(name))
        return "" if value is None else value

    @property
    def state(self):
        return self.job.get("state", 0)

    def _annotation(self, path):
        return lookup_path(self.job.get("annotations"), path)

    # the names of these methods are the fields' names

    def _id(self):
        return encodings.f58(self.job["id"])

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

    def _state_emoji(self):
        return STATE_EMOJI.get(self.state, "")

    def _result_emoji(self):
        return RESULT_EMOJI.get(self.job.get("result"), "")

    def _status_emoji(self):
        return self._result_emoji() or self._state_emoji()

    def _uri(self):
        return self._annotation("user.uri")

    def _uri_local(self):
        """The URI as it is on its own host."""
        uri = self._uri() or ""
        scheme, _, rest = uri.partition("://")
        return f"local:///{rest.partition('/')[2]}" if scheme == "ssh" else uri

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
        if self.state != states.RUN or not self.job.get("expiration"):
            return 0.0
        return max(0.0, self.job["expiration"] - self.now)

    def _returncode(self):
        status = self.job.get("waitstatus")
        if status is not None:
            return -(status & 0x7F) if status & 0x7F else exit_code(status)
        return {states.CANCELED: -128, states.FAILED: 1}.get(self.job.get("result"))

    def _dependencies(self):
        return ",".join(map(dependency, self.job.get("dependencies") or ()))

    def _contextual_time(self):
        return self.job.get("duration", 0) if self.state & states.PENDING else self._runtime()

    def _contextual_info(self):
        if not self.state & states.PENDING:
            return self.job.get("nodelist")
        if self.state == states.DEPEND:
            return "depends:" + self._dependencies()
        if self.state == states.PRIORITY:
            return "priority-wait"
        estimate = self._annotation("sched.t_estimate")
        if estimate:
            left = estimate - self.now
            return "eta:now" if left < 0 else "eta:" + times.fsd(left)
        if self.job.get("urgency") == 0:
            return "held"
        return "priority-hold" if self.job.get("priority") == 0 else None

    def _inactive_reason(self):
        if self.state != states.INACTIVE:
            return None
        result, note = self.job.get("result"), self.job.get("exception_note")
        kind, code = self.job.get("exception_type"), self._returncode()
        if result == states.CANCELED:
            return f"Canceled: {note}" if kind == "cancel" and note else "Canceled"
        if result == states.TIMEOUT:
            return "Timeout"
        if result == states.FAILED:
            if kind is not None and kind != "exec" and self.job.get("exception_severity") == 0:
                return f"Exception: type={kind}" + (f" note={note}" if note else "")
            if code > 128:
                return f"Signal: {signal.strsignal(code - 128)}"
            if code in SHELL_CODES:
                return SHELL_CODES[code]
        return f"Exit {code}"

    def to_dict(self):
        """The job for ``--json``."""
        out = {}
        for name in JSON_FIELDS:
            value = self.job.get(name) if name in self.job else self.get(name)
            if name in ("state", "result"):
                value = self.get(name)
            # a time that has not come is left out, a duration of 0 is not
            if value in ("", None) or (not value and name in UNSET):
                continue
            out[name] = value
        out["dependencies"] = [dependency(text) for text in self.job.get("dependencies") or ()]
        out["jobid"] = self._id()
        notes = out["annotations"] = dict(self.job.get("annotations") or {})
        if self._uri():
            out["uri"] = self._uri()
            notes["user"] = {key: note for key, note in notes["user"].items() if key != "uri"}
            if not notes["user"]:
                del notes["user"]
        out["exception"] = {"occurred": bool(self.job.get("exception_occurred"))}
        if self.job.get("exception_occurred"):
            for name in ("severity", "type", "note"):
                out["exception"][name] = self.job.get(f"exception_{name}", "")
        return out
