"""A job as the job list knows it (RFC 43)."""

import json
import time

from flux.job.JobID import JobID
from flux.util import OutputFormat
from flux_embedded.cmd.lib import jobinfo as _jobinfo

__all__ = ["JobInfo", "JobInfoFormat"]


class ExceptionInfo:
    """The exception that counts: ``occurred``, ``severity``, ``type``, ``note``; "" for what there is not."""

    def __init__(self, get):
        for name in ("occurred", "severity", "type", "note"):
            setattr(self, name, get(f"exception.{name}"))


class Annotations:
    """Annotations as attributes; "" for those there are not."""

    def __init__(self, table):
        self._table = table

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        value = self._table.get(name, {})
        return Annotations(value) if isinstance(value, dict) else value

    def __str__(self):
        return json.dumps(self._table) if self._table else ""

    def __format__(self, spec):
        return format(str(self), spec)


#: What dir() shows of a JobInfo: what follows from the attributes that were asked for.
_DERIVED = (
    "contextual_info contextual_time defaults get_instance_info get_remaining_time get_runtime inactive_reason"
    " properties result result_abbrev result_emoji returncode runtime state state_emoji state_single status"
    " status_abbrev status_emoji t_remaining to_dict uri username"
).split()


class JobInfo:
    """A job: its attributes by name, and what follows from them; those it lacks are "".

    Args:
        job (dict): what the job list sent
    """

    def __init__(self, job):
        self._job = dict(job)
        self._info = _jobinfo.JobInfo(self._job, time.time())

    def __dir__(self):
        hidden = [name for name in super().__dir__() if name.startswith("_")]
        return [*hidden, *_DERIVED]

    def __getattr__(self, name):
        if name.startswith("_") or name not in _jobinfo.HEADINGS:
            raise AttributeError(f"invalid JobInfo attribute '{name}'")
        return self._info.get(name)

    @property
    def duration(self):
        return float(self._info.get("duration"))

    @property
    def id(self):
        return JobID(self._job["id"])

    @property
    def exception(self):
        return ExceptionInfo(self._info.get)

    @property
    def annotations(self):
        return Annotations(self._job.get("annotations") or {})

    @property
    def sched(self):
        return self.annotations.sched

    @property
    def user(self):
        return self.annotations.user

    @property
    def dependencies(self):
        """Descriptions of the open dependencies (list of str)."""
        return [_jobinfo.dependency(text) for text in self._job.get("dependencies") or ()]

    @property
    def uri(self):
        return self._info.get("uri") or None

    def get_runtime(self, roundup=False):
        """Seconds it has run."""
        seconds = self._info.get("runtime")
        return int(seconds + 0.5) if roundup else seconds

    def get_remaining_time(self):
        """Seconds until its time is up, 0.0 if it does not run or has no limit."""
        return self._info.get("t_remaining")

    def to_dict(self, filtered=True):
        """The attributes as a dict; `filtered` leaves out those that say nothing."""
        out = {"jobid": self.id, "dependencies": self.dependencies, **self._info.to_dict()}
        if "state" not in self._job:
            out.pop("status", None)  # what would say so was not asked for
        out.setdefault("annotations", self._job.get("annotations") or {})
        if not filtered:
            for name in (*_jobinfo.ATTRS, "t_remaining"):
                if not name.startswith("exception_"):
                    out.setdefault(name, self._info.get(name))
        return out

    def __repr__(self):
        return f"<JobInfo {self.id.f58} {self.state} {self.result}>"


class JobInfoFormat(OutputFormat):
    """Formats a JobInfo with fields such as ``{id.f58:>12} {state}``."""

    def __init__(self, fmt, headings=None, prepend=None):
        super().__init__(fmt, headings or _jobinfo.HEADINGS)
