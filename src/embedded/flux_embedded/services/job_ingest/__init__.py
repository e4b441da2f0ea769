"""Job submission: service ``job-ingest``; `service` has its methods."""

from flux_embedded.services.job_ingest.service import JobIngest

__all__ = ["JobIngest"]
