"""What the job list knows about jobs (RFC 43)."""

import os
import pwd

from flux.constants import FLUX_JOB_STATE_INACTIVE, FLUX_USERID_UNKNOWN
from flux.job.info import JobInfo
from flux.job.JobID import JobID
from flux_embedded.formats import states as _states
from flux_embedded.kernel.future import RPC

__all__ = [
    "JobInfo",
    "JobList",
    "get_job",
    "job_list",
    "job_list_id",
    "job_list_inactive",
    "result",
    "result_async",
]

#: What `result` asks for.
RESULT_ATTRS = (
    "t_submit t_run t_cleanup duration result waitstatus annotations exception_occurred"
    " exception_severity exception_type exception_note".split()
)


class JobListRPC(RPC):
    def get_jobs(self):
        """Wait for the jobs, a list of dict."""
        return self.get()["jobs"]

    def get_jobinfos(self):
        """Wait for the jobs; yield a JobInfo each."""
        for job in self.get_jobs():
            yield JobInfo(job)


class JobListIdRPC(RPC):
    def get_job(self):
        """Wait for the job, a dict."""
        return self.get()["job"]

    def get_info(self):
        """Wait for the job, a JobInfo."""
        return JobInfo(self.get_job())

    get_jobinfo = get_info


def job_list(
    h,
    max_entries=1000,
    attrs=("all",),
    userid=os.getuid(),  # noqa: B008  as in the real bindings
    states=0,
    results=0,
    since=0.0,
    name=None,
    queue=None,
    constraint=None,
):
    """Request jobs; returns a future with ``get_jobs()`` and ``get_jobinfos()``.

    Args:
        h (Flux): handle
        max_entries (int): at most so many; 0: all
        attrs (iterable of str): attribute names
        userid (int): whose jobs; FLUX_USERID_UNKNOWN: everybody's
        states, results (int): masks; with both, jobs that match one of them
        since (float): only jobs that became inactive after this time
        name (str), queue (str or iterable of str): only such jobs
        constraint (dict): a further filter of RFC 43
    """
    wanted = [constraint] if constraint is not None else []
    if userid != FLUX_USERID_UNKNOWN:
        wanted.append({"userid": [userid]})
    if name:
        wanted.append({"name": [name]})
    if queue:
        wanted.append({"queue": [queue] if isinstance(queue, str) else list(queue)})
    either = [{key: [mask]} for key, mask in (("states", states), ("results", results)) if mask]
    if either:
        wanted.append({"or": either})
    payload = {
        "max_entries": int(max_entries),
        "attrs": list(attrs),
        "since": since,
        "constraint": {"and": wanted},
    }
    return JobListRPC(h, "job-list.list", payload)


def job_list_inactive(
    h, since=0.0, max_entries=1000, attrs=("all",), name=None, queue=None, constraint=None
):
    """`job_list` of everybody's inactive jobs."""
    return job_list(
        h,
        max_entries,
        attrs,
        FLUX_USERID_UNKNOWN,
        FLUX_JOB_STATE_INACTIVE,
        since=since,
        name=name,
        queue=queue,
        constraint=constraint,
    )


def job_list_id(h, jobid, attrs=("all",)):
    """Request one job; returns a future with ``get_job()`` and ``get_jobinfo()``."""
    payload = {"id": int(JobID(jobid)), "attrs": list(attrs)}
    return JobListIdRPC(h, "job-list.list-id", payload)


def get_job(h, jobid):
    """Return one job as JobInfo has it, a dict, or None if it is unknown."""
    try:
        return job_list_id(h, jobid).get_jobinfo().to_dict(filtered=False)
    except FileNotFoundError:
        return None


def result_async(h, jobid):
    """Wait for a job to become inactive; returns a future with ``get_info()``."""
    payload = {"id": int(JobID(jobid)), "attrs": RESULT_ATTRS, "state": FLUX_JOB_STATE_INACTIVE}
    return JobListIdRPC(h, "job-list.list-id", payload)


def result(h, jobid):
    """Wait for a job to become inactive and return its JobInfo."""
    return result_async(h, jobid).get_info()


class JobList:
    """A query for jobs.

    Args:
        h (Flux): handle
        attrs (iterable of str): attributes to fetch
        filters (iterable of str): names of states and results, ``pending``, ``running``, ``active``;
            default: pending and running
        ids (iterable): only these jobs, whatever the rest says
        user (str or int): whose jobs; ``all`` (default here as there: the caller's)
        max_entries (int): at most so many
        since (float): of the inactive jobs only those that ended later, in seconds since the epoch
        name (str), queue (str): only such jobs
        constraint (dict): a further filter of RFC 43

    Attributes:
        errors (list of str): which of `ids` are unknown, after `jobs`

    Raises:
        ValueError: no such filter or user
    """

    STATES = {
        **{name.lower(): mask for mask, name in _states.NAMES.items()},
        "pending": _states.PENDING,
        "running": _states.RUNNING,
        "active": _states.ACTIVE,
    }
    RESULTS = {name.lower(): mask for mask, name in _states.RESULT_NAMES.items()}

    def __init__(
        self,
        h,
        attrs=("all",),
        filters=(),
        ids=(),
        user=None,
        max_entries=1000,
        since=0.0,
        name=None,
        queue=None,
        constraint=None,
    ):
        self.handle = h
        self.attrs = list(attrs)
        self.ids = list(ids or ())
        self.max_entries = max_entries
        self.since = since
        self.name = name
        self.queue = queue
        self.constraint = constraint
        self.states = self.results = 0
        self.errors = []
        self.set_user(user)
        for filter_name in filters:
            self.add_filter(filter_name)

    def set_user(self, user):
        """Choose whose jobs to list: a name, a user id, ``all``, or None for the caller's."""
        if user is None:
            self.userid = os.getuid()
        elif user == "all":
            self.userid = FLUX_USERID_UNKNOWN
        else:
            try:
                self.userid = pwd.getpwnam(user).pw_uid
            except (KeyError, TypeError):
                try:
                    self.userid = int(user)
                except ValueError:
                    raise ValueError(f"Invalid user {user} specified") from None

    def add_filter(self, name):
        """List jobs of this state or result, too."""
        name = name.lower()
        if name == "all":
            self.states |= _states.PENDING | _states.RUNNING | _states.INACTIVE
        elif name in self.STATES:
            self.states |= self.STATES[name]
        elif name in self.RESULTS:
            self.results |= self.RESULTS[name]
        else:
            raise ValueError(f"Invalid filter specified: {name}")

    def fetch_jobs(self):
        """Request the jobs; returns a future with ``get_jobs()`` and ``get_jobinfos()``."""
        states = self.states
        if not (states or self.results):
            states = _states.PENDING | _states.RUNNING
        return job_list(
            self.handle,
            self.max_entries,
            self.attrs,
            self.userid,
            states,
            self.results,
            self.since,
            self.name,
            self.queue,
            self.constraint,
        )

    def jobs(self):
        """Return the jobs, a list of JobInfo."""
        if not self.ids:
            return list(self.fetch_jobs().get_jobinfos())
        found = []
        rpcs = [(id, job_list_id(self.handle, id, self.attrs)) for id in self.ids]
        for id, rpc in rpcs:
            try:
                found.append(rpc.get_jobinfo())
            except FileNotFoundError:
                self.errors.append(f"JobID {JobID(id).orig} unknown")
        return found
