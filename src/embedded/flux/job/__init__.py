"""Jobs: ids, jobspecs, submitting, watching, waiting, raising exceptions."""

from flux.job.event import (
    MAIN_EVENTS,
    EventLogEvent,
    JobEventWatchFuture,
    JobException,
    event_wait,
    event_watch,
    event_watch_async,
)
from flux.job.executor import FluxExecutor, FluxExecutorFuture
from flux.job.JobID import JobID, id_encode, id_parse
from flux.job.Jobspec import Jobspec, JobspecV1, validate_jobspec
from flux.job.kill import (
    cancel,
    cancel_async,
    job_kill,
    job_kill_async,
    job_raise,
    job_raise_async,
    kill,
    kill_async,
)
from flux.job.kvs import job_kvs, job_kvs_guest
from flux.job import journal, stats
from flux.job.info import JobInfo, JobInfoFormat
from flux.job.journal import JournalConsumer
from flux.job.kvslookup import JobKVSLookup, job_info_lookup, job_kvs_lookup
from flux.job.list import (
    JobList,
    get_job,
    job_list,
    job_list_id,
    job_list_inactive,
    result,
    result_async,
)
from flux.job.output import (
    job_output,
    output_event_watch,
    output_event_watch_async,
    output_watch,
    output_watch_async,
    output_watch_lines,
    output_watch_lines_async,
)
from flux.job.submit import SubmitFuture, submit, submit_async, submit_get_id
from flux.job.timeleft import timeleft
from flux.job.wait import JobWaitResult, wait, wait_async, wait_get_status

__all__ = [
    "FluxExecutor",
    "FluxExecutorFuture",
    "EventLogEvent",
    "JobEventWatchFuture",
    "JobException",
    "JobID",
    "JobInfo",
    "JobInfoFormat",
    "JobKVSLookup",
    "JobList",
    "JobWaitResult",
    "Jobspec",
    "JobspecV1",
    "JournalConsumer",
    "MAIN_EVENTS",
    "SubmitFuture",
    "cancel",
    "cancel_async",
    "event_wait",
    "event_watch",
    "event_watch_async",
    "get_job",
    "id_encode",
    "id_parse",
    "job_info_lookup",
    "job_kill",
    "job_kill_async",
    "job_kvs",
    "job_kvs_guest",
    "job_kvs_lookup",
    "job_list",
    "job_list_id",
    "job_list_inactive",
    "job_output",
    "job_raise",
    "job_raise_async",
    "journal",
    "kill",
    "kill_async",
    "output_event_watch",
    "output_event_watch_async",
    "output_watch",
    "output_watch_async",
    "output_watch_lines",
    "output_watch_lines_async",
    "result",
    "result_async",
    "stats",
    "submit",
    "submit_async",
    "submit_get_id",
    "timeleft",
    "validate_jobspec",
    "wait",
    "wait_async",
    "wait_get_status",
]
