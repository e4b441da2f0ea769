"""Storing R in the KVS before a job is told that it has it.

What becomes due while a commit is under way goes into the next one, so a burst of allocations
costs a few commits, not one each, and none is waited for.
"""

import json

from flux.kvs import KVSTxn

FIRST_RETRY = 0.1
LONGEST_RETRY = 5.0
#: Seconds after which a KVS that refuses every commit is given up.
PATIENCE = 60.0


class Committer:
    """Writes keys, and says when they are safe.

    Args:
        handle: the Flux handle
        log: a BrokerLogger
        now: function giving the time, seconds since the epoch
        give_up: ``give_up(keys)``, called when the KVS stays out of order, with what is not stored

    Attributes:
        written (int): commits that succeeded
        accepted, stored (int): keys taken and keys stored so far; they are stored in order
    """

    def __init__(self, handle, log, now, give_up):
        self.handle = handle
        self.log = log
        self.now = now
        self.give_up = give_up
        self.written = 0
        self.accepted = 0
        self.stored = 0
        self._raw = True  # whether the bindings store text as it is
        self._waiting = []
        self._batch = []
        self._armed = False
        self._failing_since = None
        self._delay = FIRST_RETRY
        self._timer = handle.timer_watcher_create(0.0, self._expired)

    def put(self, key, text, done):
        """Store `text` under `key`, then call ``done()``.

        Args:
            key (str): KVS key
            text (str): JSON
        """
        self.accepted += 1
        self._waiting.append((key, text, done))
        if not self._batch and not self._armed:
            # Whatever else this turn of the reactor brings goes along.
            self._arm(0.0)

    def _arm(self, delay):
        self._armed = True
        self._timer.reset(after=delay)

    def _expired(self, handle, watcher, revents, args):
        self._armed = False
        self._commit()

    def _commit(self):
        if not self._batch:
            self._batch, self._waiting = self._waiting, []
        if not self._batch:
            return
        try:
            self._transaction().commit_async().then(self._committed)
        except Exception as exc:  # whatever it was, the jobs wait and it is tried again
            self._failed(exc)

    def _transaction(self):
        txn = KVSTxn(self.handle)
        if self._raw:
            try:
                for key, text, _ in self._batch:
                    txn.put(key, text, raw=True)
                return txn
            except TypeError:
                self._raw = False
                txn = KVSTxn(self.handle)
        for key, text, _ in self._batch:
            txn.put(key, json.loads(text))
        return txn

    def _committed(self, future):
        try:
            future.get()
        except Exception as exc:
            self._failed(exc)
            return
        self.written += 1
        if self._failing_since is not None:
            self.log.info("KVS commit of R succeeded again")
            self._failing_since = None
            self._delay = FIRST_RETRY
        batch, self._batch = self._batch, []
        for _, _, done in batch:
            self.stored += 1
            done()
        if self._waiting:
            self._commit()

    def _failed(self, exc):
        now = self.now()
        if self._failing_since is None:
            self._failing_since = now
            self.log.error(f"KVS commit of R failed, trying again: {exc}")
        elif now - self._failing_since >= PATIENCE:
            lost = [key for key, _, _ in self._batch + self._waiting]
            self._batch, self._waiting = [], []
            self.give_up(lost)
            return
        self._arm(self._delay)
        self._delay = min(2 * self._delay, LONGEST_RETRY)
