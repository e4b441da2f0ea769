"""Where instances are: URIs, and finding that of a job's instance."""

import platform
import re
from urllib.parse import urlsplit

import flux
from flux.job.JobID import JobID
from flux.job.list import job_list_id

__all__ = ["FluxURIResolver", "JobURI"]


class JobURI:
    """The URI of an instance.

    Args:
        uri (str): ``local://PATH`` or ``ssh://HOST/PATH``
        remote_hostname (str): host of a ``local`` one; default: this one

    Raises:
        ValueError: it has no scheme
    """

    def __init__(self, uri, remote_hostname=None):
        self.uri = uri
        self.scheme, self.netloc, self.path, *_ = urlsplit(uri)
        if not self.scheme:
            raise ValueError(f"JobURI '{uri}' does not have a valid scheme")
        self.remote_hostname = remote_hostname or platform.uname()[1]

    def _other(self, made, kind):
        if self.scheme not in ("local", "ssh"):
            raise ValueError(f"Cannot convert JobURI with scheme {self.scheme} to {kind}")
        return made

    @property
    def remote(self):
        """The URI to reach it by from another host."""
        return (
            self.uri
            if self.scheme == "ssh"
            else self._other(f"ssh://{self.remote_hostname}{self.path}", "remote")
        )

    @property
    def local(self):
        """The URI to reach it by on its own host."""
        return self._other(f"local://{self.path}", "local")

    def __str__(self):
        return self.uri


class FluxURIResolver:
    """Finds the URIs of instances."""

    def resolve(self, uri):
        """Return the JobURI of a job id, ``jobid:ID``, or a URI itself; ``?local`` and ``?remote`` convert it.

        Raises:
            ValueError: no such job, or it is no instance
            NotImplementedError: another scheme
        """
        target, _, query = uri.partition("?")
        scheme, found, rest = target.partition(":")
        if found and scheme in ("local", "ssh"):
            result = JobURI(target)
        elif found and scheme != "jobid":
            raise NotImplementedError(f"No plugin for URI scheme {scheme}")
        else:
            result = self._of_job(rest if found else target)
        form = re.search(r"\b(local|remote)\b", query)
        return JobURI(getattr(result, form[1])) if form else result

    @staticmethod
    def _of_job(text):
        jobid = JobID(text)
        try:
            job = job_list_id(flux.Flux(), jobid, attrs=["annotations"]).get_job()
        except FileNotFoundError:
            raise ValueError(f"jobid {text} not found") from None
        uri = job.get("annotations", {}).get("user", {}).get("uri")
        if not uri:
            raise ValueError(f"URI not found for job {text}")
        return JobURI(uri)
