# SPDX-License-Identifier: LGPL-3.0-or-later
"""Accuracy of a scheduler's odds: likely starts of sampled jobs are queried and compared with the
actual starts."""

import errno
import time

from flux.simulate.engine.loop import ObjectMessage, Peer
from flux_engine.formats import states
from flux_engine.kernel.message import REQUEST

#: Tolerance in seconds of a start by a given time: clocks show microseconds.
SAME_TIME_S = 1e-3


class OddsSampler(Peer):
    """Queries the scheduler of a `LeanEngine` for the odds of every n-th job that has to wait, right
    after its submission.

    Attributes:
        waited, asked (int): numbers of jobs that had to wait, and that were queried
        error (str or None): the scheduler's error, if it does not answer
    """

    name = "odds"

    def __init__(self, engine, every):
        super().__init__(engine.kernel)
        self.engine = engine
        self.every = every
        self.waited = self.asked = 0
        self.error = None
        self._seconds = 0.0
        self._began = 0.0
        self._known = []  # (index of a job, its entry of ``sched.explain``)
        self._ids = {}
        engine.submitted = self._submitted

    def _submitted(self, active):
        # after the pass that follows
        self.engine.at(self.engine.now, lambda engine: self._ask(active))

    def _ask(self, active):
        if active.state != states.SCHED or self.error is not None:
            return
        self.waited += 1
        if self.waited % self.every:
            return
        self.asked += 1
        self._ids[active.id] = active.index
        self._began = time.perf_counter()
        payload = {"id": active.id}
        self.send_message(ObjectMessage(REQUEST, "sched.explain", None, payload, active.id, 0))

    def answered(self, msg):
        self._seconds += time.perf_counter() - self._began
        index = self._ids.pop(msg.matchtag)
        if msg.errnum == errno.ENOSYS:
            self.error = "the scheduler answers no questions"
        elif not msg.errnum:
            said = msg.payload["jobs"][0]
            if "odds" not in said:
                self.error = "the scheduler was told to find none (odds-depth=0)"
            elif said["odds"] is not None:
                self._known.append((index, said))

    def figures(self, outcome):
        """Return ``every``, ``waited``, ``asked``, ``error``, ``seconds`` (total time of the
        answers), and the figures of `comparison`."""
        own = {name: getattr(self, name) for name in ("every", "waited", "asked", "error")}
        return {**own, "seconds": self._seconds, **comparison(self._known, outcome)}


def comparison(known, outcome):
    """Compare the answers, (index of a job, its entry of ``sched.explain``), with the starts.

    Returns:
        dict: ``known``, the number of jobs that started and have an expected start. If it is not 0:
            ``played``, ``told``, ``limits``, the shares that started by the nine-of-ten time of the
            runs drawn, by that time as corrected and told, and by the start if all jobs run to
            their limits; and the absolute errors, in seconds, of the likely start and of the latter
    """
    pairs = [
        (outcome.start[index] + outcome.epoch, said)
        for index, said in known
        if outcome.start[index] == outcome.start[index] and said["odds"]["t_limits"] is not None
    ]
    found = {"known": len(pairs)}
    if not pairs:
        return found
    told = [said for _, said in pairs]
    by = {
        "played": [said["odds"]["t_p90"] for said in told],
        "told": [said["t_p90"] for said in told],
        "limits": [said["odds"]["t_limits"] for said in told],
    }
    for name, times in by.items():
        kept = sum(start <= when + SAME_TIME_S for (start, _), when in zip(pairs, times))
        found[name] = kept / len(pairs)
    for name, times in (("likely", [said["t_likely"] for said in told]), ("limits", by["limits"])):
        errors = sorted(abs(start - when) for (start, _), when in zip(pairs, times))
        found[f"{name}_median"] = errors[len(errors) // 2]
        found[f"{name}_mean"] = sum(errors) / len(errors)
    return found
