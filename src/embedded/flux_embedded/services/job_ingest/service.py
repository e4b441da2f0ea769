# SPDX-License-Identifier: LGPL-3.0-or-later
"""Job submission: service ``job-ingest``.

=======================  ===================================================================================
method                   payload -> response
=======================  ===================================================================================
submit                   ours: ``{jobspec, urgency?, flags?}`` -> ``{id}``; jobspec is an object or its JSON text
config-reload            the new configuration
=======================  ===================================================================================

A job is checked (`flux.job.JobspecV1`), completed (defaults of ``policy.jobspec``, constraint of its queue,
RFC 33), written to the KVS (``jobspec``, and ``J`` with the environment) with its ``submit`` event and then shown to the job manager, which may still
refuse it: then it is removed again. Jobs that arrive together are committed together.

Module argument: ``disable-validator``. Configuration: ``ingest.validator.disable``, ``ingest.validator.plugins`` (of
jobspec, the default, and feasibility). The feasibility check asks ``feasibility.check`` and is skipped while there is no scheduler.

Errors: EPROTO for unknown flags, EINVAL for the urgency and refusals of the job manager, EPERM for refusals of the validator and
the queue rules; the scheduler's own errno for infeasible jobs.
"""

import errno

from flux.job import JobspecV1
from flux_embedded.services.job_ingest.completion import Completion, with_system
from flux_engine.formats import eventlog, form, jobid, jsontext, policy
from flux_engine.formats import jobspec as spec
from flux_engine.formats.levels import LOG_ERR
from flux_engine.formats.states import (
    FLAG_DEBUG,
    FLAG_NOVALIDATE,
    FLAG_WAITABLE,
    URGENCY_DEFAULT,
    URGENCY_MAX,
    URGENCY_MIN,
)
from flux_engine.kernel.service import Service, request

KNOWN_FLAGS = FLAG_DEBUG | FLAG_WAITABLE | FLAG_NOVALIDATE
FORM = {"jobspec": (dict, str), "urgency?": int, "flags?": int}
VALIDATORS = ("jobspec", "feasibility")
_CONFIG = {"validator?": {"disable?": bool, "plugins?": [str]}}

_encode = jsontext.encoder(ensure_ascii=False)


def validate(jobspec):
    """Check a jobspec of version 1, as flux-core's default validator does.

    Raises:
        ValueError: the first error found
    """
    if jobspec.keys() != JobspecV1.top_level_keys:
        raise ValueError(
            f"jobspec: expected the keys {', '.join(sorted(JobspecV1.top_level_keys))}"
        )
    try:
        JobspecV1(**jobspec)
    except (AttributeError, KeyError, OSError, RecursionError, TypeError) as exc:
        raise ValueError(str(exc)) from None


class IdGenerator:
    """Job ids (RFC 19): 40 bits of milliseconds since the start, 14 of generator, 10 of sequence."""

    def __init__(self, epoch, generator=0):
        self._epoch = epoch
        self._generator = generator
        # The first id is 1, not 0, which too much code takes as "none".
        self._ms = 0
        self._seq = 0

    def advance(self, id):
        """Make ids only above `id` from now on."""
        ms = id >> 24
        if ms >= self._ms:
            self._ms, self._seq = ms, max(id & 1023, self._seq if ms == self._ms else 0)

    def next(self, now):
        """An id above all before, even if the clock goes back."""
        ms = int((now - self._epoch) * 1000)
        if ms > self._ms:
            self._ms, self._seq = ms, 0
        elif self._seq < 1023:
            self._seq += 1
        else:
            self._ms, self._seq = self._ms + 1, 0
        return self._ms << 24 | self._generator << 10 | self._seq


class Submission:
    """One submission in progress: the request, and its jobspec as texts and as an object."""

    __slots__ = ("msg", "jobspec", "text", "original", "urgency", "flags", "id", "t_submit")


class JobIngest(Service):
    """The ingest service."""

    name = "job-ingest"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        for arg in args:
            if arg != "disable-validator":
                raise OSError(errno.EINVAL, f"{arg}: unknown argument of job-ingest")
        self._ids = IdGenerator(float(ctx.attrs.get("broker.starttime") or ctx.kernel.clock.now()))
        self._batch = []
        self._configure(ctx.config, at_start=True)

    def begin(self):
        # After a reload the ids continue, even if the clock stood still.
        try:
            self._ids.advance(self.rpc("job-manager.getinfo").body["max_jobid"])
        except OSError as exc:
            if exc.errno != errno.ENOSYS:
                raise

    def _configure(self, config, at_start=False):
        policy.validate(config)
        ingest = form.check_table(config.get("ingest"), _CONFIG, "ingest")
        validator = ingest.get("validator", {})
        plugins = validator.get("plugins", ["jobspec"])
        if self.args or validator.get("disable"):
            plugins = []
        for name in plugins:
            if name not in VALIDATORS:
                text = f"ingest.validator.plugins: {name!r}: expected one of {VALIDATORS}"
                if at_start:
                    raise OSError(errno.EINVAL, text)
                self.log(LOG_ERR, text)
        self._validate = "jobspec" in plugins
        self._check_feasibility = "feasibility" in plugins
        self._completion = Completion(config)

    @request("config-reload")
    def _config_reload(self, msg):
        self._configure(msg.body or {})
        self.respond(msg)

    # -- one submission ----------------------------------------------------------------------------

    @request("submit", guest=True, form=FORM)
    def submit(self, msg):
        if self.ctx.kvs is None:
            raise OSError(errno.ENOSYS, "there is no KVS")
        job = Submission()
        job.msg = msg
        body = msg.body
        given = body["jobspec"]
        job.urgency = body.get("urgency", URGENCY_DEFAULT)
        job.flags = body.get("flags", 0)
        self._check_flags(job)
        try:
            jobspec = spec.decode(given) if isinstance(given, str) else given
            if self._validate and not job.flags & FLAG_NOVALIDATE:
                validate(jobspec)
        except ValueError as exc:
            raise OSError(errno.EPERM, str(exc)) from None
        complete = self._completion.complete(with_system(jobspec))
        # The environment is large, and only execution reads it: it stays in J.
        job.jobspec = spec.without_environment(complete)
        job.text = _encode(job.jobspec)
        job.original = given if isinstance(given, str) else _encode(complete)
        if self._check_feasibility and not job.flags & FLAG_NOVALIDATE:
            self.rpc("feasibility.check", {"jobspec": job.jobspec}).then(self._feasible, job)
        else:
            self._queue(job)

    @staticmethod
    def _check_flags(job):
        guest = job.msg.is_guest
        if job.flags & ~KNOWN_FLAGS:
            raise OSError(errno.EPROTO, "invalid job flags")
        if guest and job.flags & FLAG_NOVALIDATE:
            raise OSError(
                errno.EPERM, "only the instance owner can submit with FLUX_JOB_NOVALIDATE"
            )
        if not URGENCY_MIN <= job.urgency <= URGENCY_MAX:
            raise OSError(errno.EINVAL, f"urgency range is [{URGENCY_MIN}:{URGENCY_MAX}]")
        if guest and job.urgency > URGENCY_DEFAULT:
            raise OSError(errno.EINVAL, "only the instance owner can submit with urgency >16")
        if guest and job.flags & FLAG_WAITABLE:
            raise OSError(errno.EINVAL, "only the instance owner can submit with FLUX_JOB_WAITABLE")

    def _feasible(self, future, job):
        try:
            future.get()
        except OSError as exc:
            if exc.errno not in (errno.ENOSYS, errno.EHOSTUNREACH):
                self.respond_error(job.msg, exc.errno, exc.strerror)
                return
        self._queue(job)

    # -- batches -------------------------------------------------------------------------------------

    def _queue(self, job):
        now = self.kernel.time
        job.t_submit = now
        job.id = self._ids.next(now)
        if not self._batch:
            self.defer(self._flush)
        self._batch.append(job)

    def _flush(self):
        batch, self._batch = self._batch, []
        ops = []
        for job in batch:
            where = jobid.kvs_dir(job.id)
            context = {
                "userid": job.msg.userid,
                "urgency": job.urgency,
                "flags": job.flags,
                "version": 1,
            }
            ops.append(["put", where + ".J", job.original])
            ops.append(["put", where + ".jobspec", job.text])
            ops.append(
                ["put", where + ".eventlog", eventlog.encode(job.t_submit, "submit", context)]
            )
        self.ctx.kvs.commit(ops)
        jobs = [
            {
                "id": job.id,
                "userid": job.msg.userid,
                "urgency": job.urgency,
                "flags": job.flags,
                "t_submit": job.t_submit,
                "jobspec": job.jobspec,
            }
            for job in batch
        ]
        self.rpc("job-manager.submit", {"jobs": jobs}).then(self._announced, batch)

    def _announced(self, future, batch):
        try:
            errors = dict(future.body["errors"])
        except OSError as exc:
            self._remove(batch)
            for job in batch:
                self.respond_error(job.msg, exc.errno, exc.strerror)
            return
        for job in batch:
            if job.id in errors:
                self.respond_error(job.msg, errno.EINVAL, errors[job.id])
            else:
                self.respond(job.msg, {"id": job.id})
        if errors:
            self._remove([job for job in batch if job.id in errors])

    def _remove(self, jobs):
        """Remove the stored data of refused jobs."""
        self.ctx.kvs.commit([["unlink", jobid.kvs_dir(job.id)] for job in jobs])
