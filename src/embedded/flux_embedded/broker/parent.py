# SPDX-License-Identifier: LGPL-3.0-or-later
"""The enclosing instance, for an instance that runs as a job: its resources are the job's."""

import json
import os
import selectors
import socket

from flux_embedded.formats import jobid
from flux_embedded.formats.rset import RSet
from flux_embedded.kernel import message
from flux_embedded.kernel.message import Message
from flux_embedded.kernel.wire import Unpacker, pack

#: Flags of job-info requests (RFC 41): JSON objects, with updates applied.
_CURRENT = 3


class Parent:
    """A connection to the enclosing instance.

    Args:
        uri (str): where it is
        job (str): id of the job in it that this process belongs to

    Attributes:
        id (int): the job's id
        uri (str), job (str): as given

    Raises:
        OSError: it does not answer
        ValueError: `job` is no job id
    """

    def __init__(self, uri, job):
        self.uri = uri
        self.job = job
        self.id = jobid.decode(job)
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.connect(uri[len("local://") :])
        self._unpacker = Unpacker()
        self._tag = 0

    @classmethod
    def of_environment(cls, environ):
        """Return the Parent that the environment of a job tells of, or None outside any job.

        Raises:
            OSError: the parent does not answer
            ValueError: FLUX_JOB_ID is no job id
        """
        uri, job = environ.get("FLUX_URI", ""), environ.get("FLUX_JOB_ID")
        if not job or not uri.startswith("local://"):
            return None
        return cls(uri, job)

    def level(self):
        """Return how deep the parent is nested; 0 for one that is no job itself."""
        return int(self.call("attr.get", {"name": "instance-level"})["value"])

    def resources(self):
        """Return the job's R with ranks from 0 on, as the instance in it has them."""
        return (
            RSet(
                self.call("job-info.lookup", {"id": self.id, "keys": ["R"], "flags": _CURRENT})["R"]
            )
            .renumber()
            .to_dict()
        )

    def call(self, topic, payload):
        """Make a request and wait for its answer; for use before the instance's own loop runs."""
        tag = self._send(topic, payload)
        while True:
            for msg in self._receive():
                if msg.matchtag == tag:
                    if msg.errnum:
                        raise message.error_of(msg)
                    return msg.body

    def watch_expiration(self, kernel, changed, lost):
        """From now on, call ``changed(expiration)`` whenever the job's time limit changes.

        Arguments: kernel (Kernel), whose loop looks at the connection; changed; lost, called when
        the parent has gone.
        """
        request = {"id": self.id, "key": "R", "flags": 0}
        tag = self._send("job-info.update-watch", request, message.FLAG_STREAMING)

        def ready(fd, events):
            try:
                messages = self._receive()
            except (OSError, ValueError):
                self.close(kernel)
                lost()
                return
            for msg in messages:
                if msg.matchtag == tag and not msg.errnum:
                    changed(msg.body["R"]["execution"].get("expiration", 0))

        kernel.add_fd(self._sock.fileno(), selectors.EVENT_READ, ready)

    def announce(self, uri):
        """Tell the enclosing instance where the one in the job can be reached (``flux proxy JOBID``)."""
        self._send(
            "job-manager.memo", {"id": self.id, "memo": {"uri": uri}}, message.FLAG_NORESPONSE
        )

    def close(self, kernel):
        """Hang up."""
        if self._sock.fileno() >= 0:
            kernel.remove_fd(self._sock.fileno())
            self._sock.close()

    def _send(self, topic, payload, flags=0):
        self._tag += 1
        msg = Message(message.REQUEST, topic, json.dumps(payload), matchtag=self._tag, flags=flags)
        self._sock.sendall(pack(msg))
        return self._tag

    def _receive(self):
        data = self._sock.recv(1 << 18)
        if not data:
            raise OSError(104, os.strerror(104))
        return self._unpacker.feed(data)
