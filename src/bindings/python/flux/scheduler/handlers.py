"""The messages a scheduler is sent, and what becomes of each (RFC 27).

A handler checks its message at the door and calls the override point. Whatever goes wrong in
there is logged and counted, and goes no further: on a real broker, a module that fails while
running takes the instance with it.
"""

import errno

from flux.brokermod import BrokerModule, request_handler
from flux.scheduler.pools import TOO_DEEP, id_of_deep_payload

#: Largest job id and priority.
ID_MAX = (1 << 64) - 1
PRIORITY_MAX = (1 << 32) - 1


def _integer(payload, key, largest):
    value = payload.get(key)
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{key}: expected an integer from 0 to {largest}, got {value!r}")
    return value


def _object(msg):
    try:
        payload = msg.payload
    except TypeError:
        payload = {}  # there is none
    if not isinstance(payload, dict):
        raise ValueError(f"{msg.topic}: payload must be an object")
    return payload


class Handlers(BrokerModule):
    """The protocol side of `Scheduler`."""

    # -- messages without an answer of their own: what cannot be done is dropped -------------------

    @request_handler("sched.alloc", prefix=False)
    def _handle_alloc(self, msg):
        try:
            try:
                payload = _object(msg)
            except RecursionError:
                payload = {"id": id_of_deep_payload(msg.payload_str)}
                payload.update(priority=0, jobspec=TOO_DEEP)
            jobid = _integer(payload, "id", ID_MAX)
        except Exception as exc:  # nobody can be answered without an id
            self._mishap(f"alloc: malformed request: {exc}")
            return
        if jobid in self._requests:
            self._mishap(f"alloc: {self._name_of(jobid)}: a request for this job is open already")
            return
        self._events += 1
        request = self._open(msg, jobid)
        try:
            priority = _integer(payload, "priority", PRIORITY_MAX)
            if jobid in self._holding:
                raise ValueError("the job holds resources already")
            userid = payload.get("userid", 0)
            t_submit = payload.get("t_submit")
            if not isinstance(t_submit, (int, float)):
                t_submit = self.now()
            self.alloc(request, jobid, priority, userid, t_submit, payload.get("jobspec"))
        except Exception as exc:
            self._mishap(f"alloc: {self._name_of(jobid)}", trace=True)
            self._deny_open(request, f"scheduler error: {exc}")
        self._request_schedule()

    @request_handler("sched.cancel", prefix=False)
    def _handle_cancel(self, msg):
        try:
            jobid = _integer(_object(msg), "id", ID_MAX)
        except Exception as exc:
            self._mishap(f"cancel: malformed request: {exc}")
            return
        if jobid not in self._requests:
            return  # answered already, or never asked
        self._events += 1
        self._guard("cancel", self.cancel, jobid)
        self._request_schedule()

    @request_handler("sched.prioritize", prefix=False)
    def _handle_prioritize(self, msg):
        jobs = []
        try:
            entries = _object(msg)["jobs"]
            if not isinstance(entries, list):
                raise ValueError("jobs: expected an array")
            for entry in entries:
                jobid, priority = entry
                if (
                    type(jobid) is not int
                    or type(priority) is not int
                    or not 0 <= priority <= PRIORITY_MAX
                ):
                    raise ValueError(f"jobs: expected [id, priority], got {entry!r}")
                if jobid in self._requests:
                    jobs.append(entry)
        except Exception as exc:
            self._mishap(f"prioritize: malformed request: {exc!r}")
            return
        if jobs:
            self._events += 1
            self._guard("prioritize", self.prioritize, jobs)
            self._request_schedule()

    @request_handler("sched.free", prefix=False)
    def _handle_free(self, msg):
        try:
            payload = _object(msg)
            jobid = _integer(payload, "id", ID_MAX)
            R = payload.get("R")
            if not isinstance(R, dict):
                raise ValueError(f"R: expected an object, got {type(R).__name__!r}")
            final = bool(payload.get("final", False))
        except Exception as exc:
            self._mishap(f"free: malformed request: {exc}")
            return
        self._events += 1
        self._free(jobid, R, final)
        self._request_schedule()

    # -- requests with an answer --------------------------------------------------------------------

    @request_handler("sched.expiration", prefix=False)
    def _handle_expiration(self, msg):
        def serve():
            payload = _object(msg)
            jobid = _integer(payload, "id", ID_MAX)
            expiration = payload.get("expiration")
            if isinstance(expiration, bool) or not isinstance(expiration, (int, float)):
                raise ValueError(f"expiration: expected a number, got {expiration!r}")
            if not 0 <= expiration < float("inf"):
                raise ValueError(f"invalid expiration {expiration!r}")
            self._events += 1
            self.expiration(msg, jobid, expiration)
            self.released()
            self._request_schedule()

        self._serve(msg, serve)

    @request_handler("feasibility.check", prefix=False)
    def _handle_feasibility(self, msg):
        def serve():
            payload = _object(msg)
            if "jobspec" not in payload:
                raise ValueError("jobspec: missing")
            self.feasibility_check(msg, payload["jobspec"])

        self._serve(msg, serve)

    @request_handler("sched.resource-status", prefix=False)
    def _handle_resource_status(self, msg):
        def serve():
            pool = self.resources
            status = {
                "all": pool.to_dict(),
                "allocated": pool.copy_allocated().to_dict(),
                "down": pool.copy_down().to_dict(),
            }
            self.handle.respond(msg, status)

        self._serve(msg, serve)

    @request_handler("sched.quiescent", prefix=False)
    def _handle_quiescent(self, msg):
        self._quiet.append([msg, self._events, None])
        self._check_quiet()

    @request_handler("stats-get")
    def _handle_stats(self, msg):
        self._serve(msg, lambda: self.handle.respond(msg, self.stats_get()))

    # -- what keeps an error where it happened -------------------------------------------------------

    def _serve(self, msg, serve):
        """Call `serve`; answer `msg` with an error if it raises."""
        try:
            serve()
        except ValueError as exc:  # the caller's mistake
            self._refuse(msg, errno.EINVAL, str(exc))
        except Exception as exc:
            self._mishap(msg.topic, trace=True)
            self._refuse(msg, errno.EINVAL, f"{type(exc).__name__}: {exc}")

    def _refuse(self, msg, errnum, text):
        try:
            self.handle.respond_error(msg, errnum, text)
        except Exception as exc:
            self._mishap(f"{msg.topic}: cannot answer: {exc}")

    def _guard(self, what, function, *args):
        """Call an override point; returns whether it came back without an exception."""
        try:
            function(*args)
            return True
        except Exception:
            self._mishap(what, trace=True)
            return False

    def _deny_open(self, request, note):
        if not request.finalized:
            self._guard("deny", request.deny, note)
