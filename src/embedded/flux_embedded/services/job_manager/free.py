"""Giving resources back: execution's releases, ``sched.free`` and the ``free`` event (RFC 27)."""

from flux_embedded.formats import idset, rset
from flux_embedded.formats.states import CLEANUP


class Free:
    """How jobs in CLEANUP lose their resources."""

    def __init__(self, jm):
        self.jm = jm

    def released(self, job, ranks, final):
        """Execution is done with `ranks` (a set); `final`: with all of them (RFC 32)."""
        everything = job.released is None and final
        if everything:
            text = "all"
        else:
            text = idset.text(ranks)
            job.released = (job.released or set()) | ranks
        if final:
            job.start_pending = False
        self.jm.events.post(job, "release", {"ranks": text, "final": final})

    def advance(self, job):
        """Free what a job in CLEANUP no longer needs; called after each of its events."""
        if job.state != CLEANUP or not job.has_resources or job.perilogs:
            return
        if job.start_pending:
            # Execution still holds some ranks; what it let go of can be used by others, unless
            # housekeeping has to visit the nodes first, which it does for all of them at once.
            if job.released and not self.jm.housekeeping.is_configured:
                self._free_ranks(job, job.released, False)
            return
        if self.jm.housekeeping.is_configured and not job.bypass:
            self.jm.housekeeping.start(job)
        elif not job.bypass:
            if job.freed:
                self._free_ranks(job, set(rset.ranks(job.R)), True)
            else:
                self.give_back(job.id, job.R)
        self.jm.events.post(job, "free")

    def _free_ranks(self, job, ranks, final):
        freed = job.freed or set()
        new = ranks - freed
        if new or final:
            job.freed = freed | new
            self.give_back(job.id, rset.fragment(job.R, new), final)

    def give_back(self, id, R, final=True):
        """Send ``sched.free``, if there is a scheduler that knows of the job."""
        if self.jm.peer.is_ready:
            payload = {"id": id, "R": R, "final": final}
            self.jm.events.send(self.jm.h.send_untagged, "sched.free", payload)

    def response(self, msg):
        """``sched.free`` has no response but an error."""
        if msg.errnum:
            self.jm.peer.failed(f"sched.free: {msg.payload_str or f'error {msg.errnum}'}", 3)
