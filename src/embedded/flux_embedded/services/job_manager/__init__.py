"""The job manager: service ``job-manager`` (RFC 21, 27, 30, 32, 33).

`service.JobManager` lists its methods. Each file here has one part of a job's life; they share the
`JobManager` object, named ``jm`` everywhere.
"""
