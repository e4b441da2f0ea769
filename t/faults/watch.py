# SPDX-License-Identifier: LGPL-3.0-or-later
"""Watches the messages of an instance and checks them by the protocols' rules.

`Watch.see` is called for every message as it is delivered, in order. It asserts:

- no core or GPU is allocated twice, or while down, excluded or gone, and freed resources were held;
- each alloc request gets exactly one final answer, and no annotation after it;
- strict schedulers start jobs in the order of priority, then of id;
- a promised start is kept unless there is an excuse, and so is a latest start;
- a latest start becomes later only after the log has reported that it is void and why, also across
  reloads, and the scheduler never reports one as broken;
- no limit is exceeded and no licence oversold (`site_rules`);
- no job that could start, without keeping another from starting, waits for an hour;
- a job is denied only if it could never run, or its maximum wait is over, and then none starts or
  keeps waiting;
- R is in the KVS, complete, before the job manager receives it;
- no job is preempted unless that is recorded in the KVS, and the job for which it was ended starts
  on its resources, unless a fault came between.
"""

import json

from books import Books, ids, ranks_of
from history import CONSTRAINTS, SHAPES, matches

from flux.job import JobID
from flux.simulate.checking import Violation
from flux_engine.job_manager.job import merge_annotations

#: A scheduler decides, commits R and answers; messages that reach it within this number of turns of
#: the loop after the decision are too late to matter.
SLACK = 6

#: Maximum seconds until a failed commit is retried, and again until the next retry.
LONGEST_RETRY = 10.0

#: Seconds after which a promise is shown in the job's annotations.
TOLD_AFTER_S = 2.0

#: Seconds for which a job may wait without a reason.
HOUR = 3600.0

#: Seconds after its maximum wait within which a job is answered, if nothing else is in progress:
#: some commits of its R may fail first.
LATE_ANSWER = 60.0


#: The KVS key of the record of preemptions.
PREEMPTIONS = "checkpoint.sched-preemptions"


class Pending:
    """An alloc request that the scheduler has not answered yet."""

    def __init__(self, jobid, priority, turn, came):
        self.jobid = jobid
        self.priority = priority
        self.since = turn
        self.came = came

    def rank_in_queue(self):
        return (-self.priority, self.jobid)


class Watch:
    """One instance, watched.

    Args:
        kernel: the kernel its messages go through
        strict (bool): the scheduler starts jobs in the order of the queue
        promising (bool): it makes promises to several jobs, and keeps them
        ranked (bool): it orders jobs by ranks that are not known here
        preempting (bool): jobs may end for others
    """

    def __init__(self, kernel, strict, promising=False, ranked=False, preempting=False):
        self.kernel = kernel
        self.strict = strict
        self.promising = promising
        self.ranked = ranked
        self.bound = False  # to the starts it promised
        self.reserving = False  # there may be reservations that keep jobs waiting
        self.policing = False  # there are limits that keep jobs waiting
        self.site_rules = None
        self.ends = {}  # jobid -> expiration of its R
        self.preempting = preempting
        self.faults = 0  # counted by the driver: they excuse a scheduler
        self.recorded = set()  # ids of the victims recorded in the KVS
        self.borrowers = set()  # ids of jobs that have run in promised time
        #: (endpoint, matchtag) of commits without an answer -> the record in the KVS if they
        #: succeed
        self.recording = {}
        self.preempted = {}  # jobid -> [(victim, its ranks, faults then)] of those ended for it
        self.books = None
        self.jobs = {}  # jobid -> job of the history, filled in by the driver
        self.pending = {}
        self.first_came = {}  # jobid -> time of its first request
        self.committed = {}  # jobid -> turn in which its R reached the KVS service
        self.up = set()
        self.down_since = {}  # rank -> turn in which the scheduler learnt that it is down
        self.properties = {}
        self.annotations = {}
        self.estimates = {}  # jobid -> start first promised since its request
        self.latest = {}  # jobid -> latest start it was told since its request
        self.latest_before = {}  # jobid -> the same, told by a scheduler that was unloaded in order
        self.void = set()  # jobs whose latest start the log has since reported void
        self.able = {}  # jobid -> time since when it could start without keeping another from starting
        self.hello = None
        self.unreported = set()
        self.commit_failed = (0, 0.0)  # turn of the first of a series of failures, time of the last
        self.changed = 0  # turn of the last change of the inventory

    # -- messages --------------------------------------------------------------------------------

    def see(self, endpoint, msg):
        """Take note of a message about to be delivered; one that breaks a rule is a Violation."""
        topic = msg.topic
        if msg.type == 1:
            if topic == "kvs.commit":
                self._commit(msg)
            elif topic == "log.append":
                self._logged(msg.body)
            elif topic == "job-manager.raise":
                self._raised(msg.body)
            elif topic.startswith("sched.") and self.holds_sched(endpoint):
                handler = getattr(self, "_sched_" + topic[6:].replace("-", "_"), None)
                if handler:
                    handler(msg.body)
        elif msg.type == 2 and not msg.errnum:
            if topic == "kvs.commit":
                self._stored(endpoint, msg.matchtag)
            elif topic == "resource.acquire":
                self._acquire(msg.body)
            elif topic == "sched.alloc":
                self._answer(msg.body)
            elif topic == "job-manager.sched-hello":
                self._hello(msg.body)
        elif msg.type == 2 and topic == "job-manager.sched-hello":
            self._hello_end()
        elif msg.type == 2 and topic == "kvs.commit" and self.holds_sched(endpoint):
            self.recording.pop((endpoint, msg.matchtag), None)
            first, when = self.commit_failed
            retry = self.kernel.now() - when < LONGEST_RETRY
            self.commit_failed = (first if retry else self.kernel.turns, self.kernel.now())

    def _logged(self, body):
        text = body["text"]
        if "Traceback" in text and "nobody knows" not in text:
            raise Violation(f"{body['name']} logged a bug:\n{text}")
        if "this is a bug" in text:
            raise Violation(f"{body['name']} says: {text}")
        name, _, rest = text.partition(": the promise to start by ")
        if " is void: " in rest:
            self.void.add(JobID(name))
        name, _, why = text.removeprefix("preemption for ").partition(" is given up: ")
        if why.startswith(("limit ", "budget ", "licenses")):  # reached since by others
            self.preempted.pop(JobID(name), None)

    def holds_sched(self, endpoint):
        return self.kernel.services.get("sched") is endpoint

    def latest_of_pending(self):
        """The latest starts shown to pending jobs, by id; without those that the log has reported
        void."""
        told = (self.latest.keys() & self.pending.keys()) - self.void
        return {jobid: self.latest[jobid] for jobid in told}

    def scheduler_gone(self):
        """The scheduler is gone: its requests are void, and frees are not announced."""
        self.pending.clear()
        self.latest.clear()
        self.committed.clear()
        for annotations in self.annotations.values():
            annotations.pop("sched", None)

    # -- the resource service --------------------------------------------------------------------

    def _acquire(self, body):
        turn = self.changed = self.kernel.turns
        if "resources" in body:
            R = body["resources"]
            if self.books is None:
                self.books = Books(R)
            else:
                self.books.renew(R)
            self.up = set()
            ranks = ranks_of(self.books.inventory)
            self.down_since = dict.fromkeys(ranks, turn)
            self.properties = {rank: set() for rank in ranks}
            for name, text in R["execution"].get("properties", {}).items():
                for rank in ids(text):
                    self.properties[rank].add(name)
        for key, change in (("property-remove", set.discard), ("property-add", set.add)):
            for name, text in body.get(key, {}).items():
                for rank in ids(text):
                    change(self.properties[rank], name)
        for rank in ids(body.get("up", "")):
            if rank in self.up:
                raise Violation(f"rank {rank} came up twice")
            self.up.add(rank)
            self.down_since.pop(rank, None)
        for rank in ids(body.get("down", "")):
            if rank not in self.up and rank not in ids(body.get("shrink", "")):
                raise Violation(f"rank {rank} went down while down")
            self.up.discard(rank)
            self.down_since[rank] = turn
        if "shrink" in body:
            gone = ids(body["shrink"])
            self.books.shrink(gone)
            self.up -= gone

    # -- the job manager -------------------------------------------------------------------------

    def _sched_alloc(self, body):
        jobid = body["id"]
        if jobid in self.pending:
            raise Violation(f"a second alloc request for job {jobid}")
        if "environment" in body["jobspec"]["attributes"]["system"]:
            raise Violation(f"the jobspec of job {jobid} was sent with its environment")
        came = self.kernel.now()
        self.pending[jobid] = Pending(jobid, body["priority"], self.kernel.turns, came)
        self.first_came.setdefault(jobid, came)
        self.estimates.pop(jobid, None)
        self.void.discard(jobid)
        self.latest.pop(jobid, None)
        if jobid in self.latest_before:
            self.latest[jobid] = self.latest_before.pop(jobid)

    def _sched_prioritize(self, body):
        for jobid, priority in body["jobs"]:
            if jobid in self.pending:
                self.pending[jobid].priority = priority
                self.pending[jobid].since = self.kernel.turns

    def _sched_free(self, body):
        self.books.free(body["id"], body["R"], body.get("final", False))

    def _hello(self, body):
        if self.hello is None:
            self.hello = set()
        jobid = body["id"]
        self.hello.add(jobid)
        held = self.books.held.get(jobid)
        if held is None:
            raise Violation(f"hello tells of job {jobid}, which holds nothing")
        freed = ids(body.get("free", ""))
        for resource in [resource for resource in held if resource[0] in freed]:
            held.discard(resource)
            del self.books.owner[resource]

    def _hello_end(self):
        known, self.hello = self.hello or set(), None
        if self.books is None:
            return
        for jobid in [jobid for jobid in self.books.held if jobid not in known]:
            # Freed while no scheduler was loaded: the driver checks that its log says so.
            self.unreported.add(jobid)
            for resource in self.books.held.pop(jobid):
                del self.books.owner[resource]

    # -- the scheduler ---------------------------------------------------------------------------

    def _commit(self, msg):
        for op in msg.body.get("ops", ()):
            if op[0] == "put" and op[1].startswith("job.") and op[1].endswith(".R"):
                jobid = int(op[1][4:-2].replace(".", ""), 16)
                R = json.loads(op[2])
                if self.committed.get(jobid, (0, None))[1] != R:
                    self.committed[jobid] = (self.kernel.turns, R)

            elif op[0] == "put" and op[1] == PREEMPTIONS:
                stored = json.loads(op[2])
                jobids = {one["id"] for one in stored.get("borrowers", ())}
                self.borrowers |= jobids
                for one in stored["preemptions"]:
                    jobids.update(victim["id"] for victim in one["victims"])
                self.recording[msg.sender, msg.matchtag] = jobids

    def _stored(self, endpoint, matchtag):
        """A commit has succeeded, perhaps one that a crashed scheduler had requested."""
        jobids = self.recording.pop((endpoint, matchtag), None)
        if jobids is not None:
            self.recorded = jobids
            self.recording = {key: one for key, one in self.recording.items() if key[0] is endpoint}

    def _raised(self, body):
        """An exception: perhaps one that preempts a job."""
        if body["type"] != "preempt" or body["severity"] != 0:
            return
        victim = body["id"]
        gone = [one for (asker, _), one in self.recording.items() if not self.holds_sched(asker)]
        if not any(victim in one for one in (self.recorded, *gone)):
            raise Violation(f"job {victim} is ended to make way, and there is no record of it")
        taker = int(JobID(body["note"].split()[2]))
        # A promise may use nodes that came free while its borrower was being ended.
        held = self.books.owner if victim in self.borrowers else self.books.held.get(victim, ())
        ranks = ranks_of(held)
        self.preempted.setdefault(taker, []).append((victim, ranks, self.faults))

    def _served(self, jobid, ranks):
        """A job starts on these ranks, or (None) is gone: check that its victims were not ended for
        nothing."""
        for victim, where, faults in self.preempted.pop(jobid, ()):
            if where and faults == self.faults and not (ranks and ranks & where):
                how = "is gone" if ranks is None else f"started on ranks {sorted(ranks)}"
                raise Violation(
                    f"job {victim}, on ranks {sorted(where)}, was ended for job {jobid}, which {how}"
                )

    def all_served(self):
        """No job will start any more: that one was ended for a job that has not started is a Violation."""
        for jobid in list(self.preempted):
            self._served(jobid, None)

    def _annotate(self, jobid, annotations):
        self.annotations[jobid] = merge_annotations(self.annotations.get(jobid, {}), annotations)
        self._told_latest(jobid)

    def _answer(self, body):
        jobid = body["id"]
        if jobid not in self.pending:
            raise Violation(f"an answer for job {jobid}, which has no request: {body}")
        if body["type"] == 1:
            self._annotate(jobid, body["annotations"])
            estimate = self._promised(jobid)
            if estimate is not None:
                self.estimates.setdefault(jobid, estimate)
            elif not self.preempting or not self.bound:
                self.estimates.pop(jobid, None)
            # A taker gets another estimate, which must be earlier.
            return
        request = self.pending.pop(jobid)
        if body["type"] == 0:
            self._annotate(jobid, body.get("annotations", {}))
            self._success(request, body["R"])
        elif body["type"] == 2:
            self._served(jobid, None)
            self.annotations.pop(jobid, None)
            self._deny(jobid, body.get("note"))
        elif set(body) != {"id", "type"}:
            raise Violation(f"a cancel response has id and type only: {body}")

    def _told_latest(self, jobid):
        """The annotations of a job, with its latest start, were set."""
        latest = self.annotations[jobid].get("sched", {}).get("t_latest")
        before = self.latest.get(jobid)
        # A canceled one has its latest start removed.
        if before is not None and latest is not None and latest > before + 0.001:
            if self.bound or jobid not in self.void:
                raise Violation(f"job {jobid} was to start by {before}, and then by {latest}")
        if latest != before:  # not by another annotation, sent before it became void
            self.void.discard(jobid)
        if latest is None:
            self.latest.pop(jobid, None)
        else:
            self.latest[jobid] = latest

    def _success(self, request, R):
        jobid = request.jobid
        turn, committed = self.committed.pop(jobid, (None, None))
        if committed is None:
            raise Violation(f"job {jobid} was started before its R was in the KVS")
        if committed["execution"]["R_lite"] != R["execution"]["R_lite"]:
            raise Violation(f"job {jobid} was started on another R than the one in the KVS")
        may_wait = self._may_wait(jobid)
        if may_wait:  # one that may not wait at all is decided by a pass, at any time
            # The time of the decision counts, not that of storing R.
            waited = R["execution"]["starttime"] - request.came
            if waited > may_wait + 0.01:
                raise Violation(f"job {jobid} was started after {waited} s of {may_wait} s")
        failed, when = self.commit_failed
        late = self.kernel.now() - when < LONGEST_RETRY
        self.books.allocate(jobid, R, late)
        if self.site_rules is not None:
            self.site_rules.started(jobid, self.jobs, self.books.held)
        self.ends[jobid] = R["execution"].get("expiration", 0)
        self._served(jobid, ranks_of(self.books.held[jobid]))
        latest = self.latest.pop(jobid, None)
        now, promised = self.kernel.now(), self.estimates.get(jobid)
        if self.bound and latest is not None and now > latest + 0.001:
            raise Violation(f"job {jobid} was to start by {latest}, at {now} it did")
        if self.bound and promised is not None and now > promised + 0.001:
            raise Violation(f"job {jobid} was promised {promised} and started at {now}")
        if late:
            turn = min(turn, failed)  # it may have been decided then, and retried with the rest
        for rank in ranks_of(self.books.held[jobid]):
            if self.down_since.get(rank, turn) < turn - SLACK:
                raise Violation(f"job {jobid} was given rank {rank}, which is down")
        self._right_shape(jobid, R)
        # With preemption, resources kept for a job are not for those ahead of it.
        if self.strict and not self.reserving and not self.policing and not self.preempting:
            for other in self.pending.values():
                precedes = other.rank_in_queue() < request.rank_in_queue()
                if precedes and max(other.since, request.since) < turn - SLACK:
                    raise Violation(
                        f"job {jobid} was started while {other.jobid}, which precedes it, waits"
                    )

    def _right_shape(self, jobid, R):
        """R has the resources that the jobspec requests, where its constraint allows."""
        job = self.jobs.get(jobid)
        if job is None:
            return
        shape = SHAPES[job["shape"]]
        held = self.books.held[jobid]
        ranks = ranks_of(held)
        slots = shape["slots"] * (shape["nodes"] or 1)
        known = self.books.inventory | self.books.left
        has_all = held == {resource for resource in known if resource[0] in ranks}
        if shape.get("exclusive"):
            wrong = not has_all or len(ranks) != shape["nodes"]
        elif has_all and self.site_rules is not None and self.site_rules.may_be_whole():
            wrong = False
        else:
            cores = sum(resource[1] == "core" for resource in held)
            gpus = sum(resource[1] == "gpu" for resource in held)
            wrong = (cores, gpus) != (slots * shape["cores"], slots * shape["gpus"])
            wrong = wrong or (shape["nodes"] and len(ranks) != shape["nodes"])
        if wrong or R["execution"].get("nslots") != slots:
            raise Violation(f"job {jobid} asked for {shape} and was given {R['execution']}")

    def _deny(self, jobid, note):
        if not note:
            raise Violation(f"job {jobid} was denied without a reason")
        job = self.jobs.get(jobid)
        if note.startswith("max-wait: "):
            if job is None:
                return  # its submission was not answered yet
            may_wait = job.get("max_wait")
            waited = self.kernel.now() - self.first_came[jobid]
            if may_wait is None or waited < may_wait - 0.01:
                raise Violation(f"job {jobid} was denied after {waited} s ({note}): {job}")
            return
        settled = self.kernel.turns - self.changed > SLACK
        if job is not None and {"reservation", "licenses", "placement", "memory"} & job.keys():
            return  # this job may not have them, or they are too few, or not together
        if job is not None and settled and self.could_run(job):
            raise Violation(f"job {jobid} was denied ({note}) though it could run: {job}")

    def _may_wait(self, jobid):
        """The maximum wait of a job in seconds; None: unlimited."""
        return self.jobs.get(jobid, {}).get("max_wait")

    # -- queries by the driver -------------------------------------------------------------------

    def overdue(self):
        """The id of a job that is pending beyond its maximum wait, else None. Call it while the
        scheduler is at rest."""
        now = self.kernel.now()
        for one in self.pending.values():
            may_wait = self._may_wait(one.jobid)
            if may_wait is not None and now - one.came > may_wait + LATE_ANSWER:
                return one.jobid
        return None

    def ranks_for(self, job):
        """Ranks of the inventory that satisfy a job's constraint."""
        constraint = CONSTRAINTS[job["constraint"]]
        has = lambda rank: matches(constraint, rank, self.properties.get(rank, set()))
        return set(filter(has, ranks_of(self.books.inventory)))

    def could_run(self, job):
        """Whether it would fit if all ranks were up and free."""
        empty = Books.__new__(Books)
        empty.inventory, empty.held, empty.owner = self.books.inventory, {}, {}
        return empty.fits(SHAPES[job["shape"]], self.ranks_for(job))

    def stuck(self):
        """The id of the first job in the queue if it could start now, else None."""
        if not self.pending or self.reserving or self.policing or self.preempting:
            return None
        if self.promising and len(self.pending) > 1:
            # It may have to wait because of a promise to one behind it, which may not be annotated
            # yet.
            young = self.kernel.now() - TOLD_AFTER_S
            for jobid, one in self.pending.items():
                if self._promised(jobid) is not None or one.came > young:
                    return None
        if self.ranked and len(self.pending) > 1:
            return None  # it may be another one's turn
        head = min(self.pending.values(), key=Pending.rank_in_queue)
        job = self.jobs.get(head.jobid)
        if job is None:
            return None
        ranks = self.ranks_for(job) & self.up
        starts = self.books.fits(SHAPES[job["shape"]], ranks)
        return head.jobid if starts or not self.could_run(job) else None

    def _lets_in(self, jobid, job):
        """Whether no limit keeps a pending job from starting, regardless of its placement."""
        shape = SHAPES[job["shape"]]
        nodes = shape["nodes"] or shape["slots"]  # at most, each slot on a separate node
        slots = shape["slots"] * (shape["nodes"] or 1)
        cores, gpus = slots * shape["cores"], slots * shape["gpus"]
        if shape.get("exclusive"):
            cores, gpus = nodes * 4, nodes * 2
        most = {"nodes": nodes, "cores": cores, "gpus": gpus, "jobs": 1}
        if not self.site_rules.allows(jobid, self.jobs, self.books.held, most):
            return False
        # With a strict limit, another job of the same bank may be first.
        return not any(
            limit.get("order") == "strict" or limit.get("soft")
            for tables in self.site_rules.tables
            for limit in tables.get("limits", {}).values()
        )

    def _promised(self, jobid):
        """The promised start of a job, by its current annotations; None: it has none."""
        sched = self.annotations.get(jobid, {}).get("sched", {})
        return sched["t_estimate"] if sched.get("t_estimate_kind") == "promised" else None

    def idle(self):
        """The id of a job that could have started for an hour without keeping another from
        starting, else None.  Call it while the scheduler is at rest."""
        now = self.kernel.now()
        able = [one.jobid for one in self.pending.values() if self._keeps_nobody(one, now)]
        self.able = {jobid: self.able.get(jobid, now) for jobid in able}
        return next((jobid for jobid, since in self.able.items() if now - since >= HOUR), None)

    def _keeps_nobody(self, one, now):
        """Whether a pending job fits now and would delay no other that could use its ranks."""
        job = self.jobs.get(one.jobid)
        if self.strict or self.reserving or job is None:
            return False
        ranks = self.ranks_for(job)
        if not self.books.fits(SHAPES[job["shape"]], ranks & self.up):
            return False
        if self.policing and not self._lets_in(one.jobid, job):
            return False
        for other in self.pending.values():
            theirs = self.jobs.get(other.jobid)
            if theirs is None:
                return False
            if other is one or not ranks & self.ranks_for(theirs):
                continue
            if self.ranked:
                return False  # it may be the other one's turn
            start = self._promised(other.jobid)
            if start is not None:
                if not job["duration"] or now + job["duration"] > start:
                    return False
            elif other.rank_in_queue() < one.rank_in_queue():
                return False  # its resources may be kept for it, or it must start first
        return True
