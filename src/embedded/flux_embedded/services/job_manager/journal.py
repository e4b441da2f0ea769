"""``job-manager.events-journal``: a stream of all job events, for job-list and others.

Request ``{full: bool}`` (streaming). Each response is ``{"events": [ENTRY, ...]}`` with ENTRY
``{"id", "seq", "event": {...}}``; the entry of ``submit`` also has ``jobspec``, that of ``alloc`` has
``R``. ``seq`` counts the events of a job from 1. ``annotations`` entries are no eventlog events: they
carry the job's annotations whenever these changed, and the seq of the event before. With `full` the
stream begins with one response that holds the events of all jobs there are.
"""

import errno


class Reader:
    """One request for the journal."""

    def __init__(self, jm, msg, full):
        self.jm = jm
        self.msg = msg
        self._kept = [] if full else None

    def take(self, entries, body):
        if self._kept is None:
            self.jm.respond(self.msg, body)
        else:
            self._kept.extend(entries)

    def history(self, entries):
        """The past is there: send it, and what happened while it was read and is not in it."""
        known = {}
        for entry in entries:
            known[entry["id"]] = entry["seq"]
        later = [entry for entry in self._kept if entry["seq"] > known.get(entry["id"], 0)]
        self._kept = None
        self.jm.respond(self.msg, {"events": entries + later})


class Journal:
    """The readers of the journal."""

    def __init__(self, jm):
        self.jm = jm
        self._readers = []
        self._events = 0

    def stats(self):
        """What ``job-manager.stats-get`` has of it."""
        return {"listeners": len(self._readers), "events": self._events}

    def request(self, msg):
        """``events-journal``."""
        full = bool((msg.body or {}).get("full"))
        reader = Reader(self.jm, msg, full)
        self._readers.append(reader)
        if full:
            self.jm.restart.send_history(reader)

    def publish(self, entries):
        """Send entries to all readers."""
        self._events += len(entries)
        if self._readers:
            body = {"events": entries}
            for reader in self._readers:
                reader.take(entries, body)

    def cancel(self, sender, matchtag):
        """``events-journal-cancel``."""
        for reader in self._readers:
            if reader.msg.sender is sender and reader.msg.matchtag == matchtag:
                self._readers.remove(reader)
                self.jm.respond_error(reader.msg, errno.ENODATA)
                return

    def disconnected(self, sender):
        self._readers = [reader for reader in self._readers if reader.msg.sender is not sender]
