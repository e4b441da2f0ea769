# SPDX-License-Identifier: LGPL-3.0-or-later
"""The enclosing instance, for an instance that runs as a job: its resources are the job's."""

from flux_engine.formats import jobid
from flux_engine.formats.rset import RSet
from flux_engine.kernel.future import RPC_NORESPONSE
from flux_engine.kernel.link import connect

#: Flags of job-info requests (RFC 41): JSON objects, with updates applied.
_CURRENT = 3


class Parent:
    """A connection to the enclosing instance at `uri`, for the job (its id as text) that this process belongs to.

    Its maker gets OSError if it does not answer, ValueError for a wrong id.
    """

    def __init__(self, uri, job):
        self.uri = uri
        self.job = job
        self.id = jobid.decode(job)
        self._h = connect(uri)

    @classmethod
    def of_environment(cls, environ):
        """The Parent by the environment of a job, or None outside of one; OSError if it does not answer, ValueError for a wrong id."""
        uri, job = environ.get("FLUX_URI", ""), environ.get("FLUX_JOB_ID")
        if not job or not uri.startswith("local://"):
            return None
        return cls(uri, job)

    def level(self):
        """Return the nesting level of the parent; 0 for one that is not a job itself."""
        return int(self._h.attr_get("instance-level"))

    def resources(self):
        """Return the job's R with ranks from 0 on, as the instance in it has them."""
        lookup = {"id": self.id, "keys": ["R"], "flags": _CURRENT}
        R = self._h.rpc_object("job-info.lookup", lookup).body["R"]
        return RSet(R).renumber().to_dict()

    def announce(self, uri):
        """Tell the enclosing instance the URI of the one in the job."""
        memo = {"id": self.id, "memo": {"uri": uri}}
        self._h.rpc_object("job-manager.memo", memo, RPC_NORESPONSE)

    def close(self):
        """Close the connection."""
        self._h.disconnect()
