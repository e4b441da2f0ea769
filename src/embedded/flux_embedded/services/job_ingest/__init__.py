"""Job submission: service ``job-ingest``; `service` has its methods."""
