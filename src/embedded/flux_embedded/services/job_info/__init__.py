"""Job data from the KVS: service ``job-info``; `service` has its methods, `watch` its streams."""

from flux_embedded.services.job_info.service import JobInfo

__all__ = ["JobInfo"]
