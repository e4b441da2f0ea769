# SPDX-License-Identifier: LGPL-3.0-or-later
"""Job submission: service ``job-ingest``.

=======================  ===================================================================================
method                   payload -> response
=======================  ===================================================================================
submit                   ours: ``{jobspec, urgency?, flags?}`` -> ``{id}``; jobspec is an object or its JSON text
=======================  ===================================================================================

A job is checked (`flux.job.JobspecV1`), completed (defaults of ``policy.jobspec``, constraint of its queue,
RFC 33), written to the KVS (``jobspec``, and ``J`` with the environment) with its ``submit`` event and then shown to the job manager, which may still
refuse it: then it is removed again.

Module argument: ``disable-validator``. Configuration: ``ingest.validator.disable``, ``ingest.validator.plugins`` (of
jobspec, the default, and feasibility). The feasibility check asks ``feasibility.check`` and is skipped while there is no scheduler.

Errors: EPROTO for unknown flags, EINVAL for the urgency and refusals of the job manager, EPERM for refusals of the validator and
the queue rules; the scheduler's own errno for infeasible jobs.
"""

import copy
import errno

from flux.job import JobspecV1
from flux.job.frobnicator.plugins.constraints import apply_constraints
from flux.job.frobnicator.plugins.defaults import DefaultsConfig
from flux.job.Jobspec import Jobspec
from flux.queue import QueueConf
from flux_engine.formats import eventlog, form, jobid, jsontext, policy, states
from flux_engine.formats import jobspec as spec
from flux_engine.kernel.service import Service, refusing, request

KNOWN_FLAGS = states.FLAG_DEBUG | states.FLAG_WAITABLE | states.FLAG_NOVALIDATE
FORM = {"jobspec": (dict, str), "urgency?": int, "flags?": int}
VALIDATORS = ("jobspec", "feasibility")


def _validator(name):
    if name not in VALIDATORS:
        raise ValueError(f"{name!r}: expected one of {VALIDATORS}")


_CONFIG = {"validator?": {"disable?": bool, "plugins?": [_validator]}}

_encode = jsontext.encoder(ensure_ascii=False)


def validate(jobspec):
    """Check a jobspec of version 1, as flux-core's default validator does; ValueError has the first error found."""
    if jobspec.keys() != JobspecV1.top_level_keys:
        raise ValueError(
            f"jobspec: expected the keys {', '.join(sorted(JobspecV1.top_level_keys))}"
        )
    try:
        JobspecV1(**jobspec)
    except (AttributeError, KeyError, OSError, RecursionError, TypeError) as exc:
        raise ValueError(str(exc)) from None


class IdGenerator:
    """Job ids (RFC 19): 40 bits of milliseconds since the start, 14 of generator, which are 0, 10 of sequence."""

    def __init__(self, epoch):
        self._epoch = epoch
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
        return self._ms << 24 | self._seq


class JobIngest(Service):
    name = "job-ingest"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        for arg in args:
            if arg != "disable-validator":
                raise OSError(errno.EINVAL, f"{arg}: unknown argument of job-ingest")
        self._ids = IdGenerator(float(ctx.attrs.get("broker.starttime") or ctx.kernel.clock.now()))
        self.configure(ctx.config)

    def begin(self):
        # After a reload the ids continue, even if the clock stood still.
        try:
            self._ids.advance(self.rpc("job-manager.getinfo").body["max_jobid"])
        except OSError as exc:
            if exc.errno != errno.ENOSYS:
                raise

    def configure(self, config):
        policy.validate(config)
        ingest = form.check_table(config.get("ingest"), _CONFIG, "ingest")
        validator = ingest.get("validator", {})
        off = self.args or validator.get("disable")
        plugins = () if off else validator.get("plugins", ["jobspec"])
        self._validate = "jobspec" in plugins
        self._check_feasibility = "feasibility" in plugins
        self._queues = QueueConf.from_config(config)

    # -- one submission ----------------------------------------------------------------------------

    @request("submit", guest=True, form=FORM, later=True)
    def submit(self, msg):
        given, flags = msg.body["jobspec"], msg.body.get("flags", 0)
        urgency = msg.body.get("urgency", states.URGENCY_DEFAULT)
        _check(msg.is_guest, urgency, flags)
        with refusing():
            jobspec = spec.decode(given) if isinstance(given, str) else given
        try:
            if self._validate and not flags & states.FLAG_NOVALIDATE:
                validate(jobspec)
        except ValueError as exc:
            raise OSError(errno.EPERM, str(exc)) from None
        jobspec = complete(jobspec, self._queues)
        original = given if isinstance(given, str) else _encode(jobspec)
        # The environment is large, and only execution reads it: it stays in J.
        jobspec = spec.without_environment(jobspec)
        job = {"userid": msg.userid, "urgency": urgency, "flags": flags, "jobspec": jobspec}
        if self._check_feasibility and not flags & states.FLAG_NOVALIDATE:
            asked = self.rpc("feasibility.check", {"jobspec": jobspec})
            asked.then(self._feasible, msg, job, original)
        else:
            self._store(msg, job, original)

    def _feasible(self, future, msg, job, original):
        if self.is_allowed(future, msg):
            self._store(msg, job, original)

    def _store(self, msg, job, original):
        """Store a job, and show it to the job manager."""
        job["t_submit"] = now = self.kernel.time
        job["id"] = self._ids.next(now)
        where = jobid.kvs_dir(job["id"])
        context = {key: job[key] for key in ("userid", "urgency", "flags")}
        event = eventlog.encode(now, "submit", {**context, "version": 1})
        self.ctx.kvs.commit(
            [
                ["put", where + ".J", original],
                ["put", where + ".jobspec", _encode(job["jobspec"])],
                ["put", where + ".eventlog", event],
            ]
        )
        self.rpc("job-manager.submit", {"jobs": [job]}).then(self._announced, msg, job)

    def _announced(self, future, msg, job):
        try:
            for _, text in future.body["errors"]:
                self._refuse(msg, job, errno.EINVAL, text)
                return
        except OSError as exc:
            self._refuse(msg, job, exc.errno, exc.strerror)
            return
        self.respond(msg, {"id": job["id"]})

    def _refuse(self, msg, job, errnum, text):
        self.ctx.kvs.commit([["unlink", jobid.kvs_dir(job["id"])]])
        self.respond_error(msg, errnum, text)


def _check(is_guest, urgency, flags):
    """Check the flags and the urgency of a submission; OSError says why they are refused."""
    if flags & ~KNOWN_FLAGS:
        raise OSError(errno.EPROTO, "invalid job flags")
    if is_guest and flags & states.FLAG_NOVALIDATE:
        raise OSError(errno.EPERM, "only the instance owner can submit with FLUX_JOB_NOVALIDATE")
    if not states.URGENCY_MIN <= urgency <= states.URGENCY_MAX:
        raise OSError(errno.EINVAL, f"urgency range is [{states.URGENCY_MIN}:{states.URGENCY_MAX}]")
    if is_guest and urgency > states.URGENCY_DEFAULT:
        raise OSError(errno.EINVAL, "only the instance owner can submit with urgency >16")
    if is_guest and flags & states.FLAG_WAITABLE:
        raise OSError(errno.EINVAL, "only the instance owner can submit with FLUX_JOB_WAITABLE")


def complete(jobspec, queues):
    """A copy of `jobspec`, which was not necessarily validated, completed by the configuration `queues` (flux.queue.QueueConf).

    Raises:
        OSError: EPERM: the queue is refused; EINVAL: an attribute has another type
    """
    attributes = _object(_object(jobspec, "jobspec").get("attributes"), "attributes")
    system = _object(attributes.get("system"), "attributes.system")
    # The environment is large, and not changed.
    own = {
        key: value if key == "environment" else copy.deepcopy(value)
        for key, value in system.items()
    }
    own.setdefault("duration", 0)
    complete = object.__new__(Jobspec)  # it would validate
    complete.jobspec = {**jobspec, "attributes": {**attributes, "system": own}}
    try:
        if queues or queues.policy():
            DefaultsConfig(queues).apply_defaults(complete)
            apply_constraints(queues, complete)
    except ValueError as exc:
        raise OSError(errno.EPERM, str(exc)) from None
    except (AttributeError, TypeError) as exc:
        raise OSError(errno.EINVAL, f"jobspec: {exc}") from None
    return complete.jobspec


def _object(value, name):
    if value is not None and not isinstance(value, dict):
        raise OSError(errno.EINVAL, f"{name}: expected an object")
    return value or {}
