# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager: service ``job-manager`` (RFC 21, 27, 30, 32, 33).

`service.JobManager` lists its methods and puts its parts together. Each file here has one part of a job's life, and is
given what it works on: the `Service` to send and answer with, the `Jobs` there are, `Events` to post to them, and
the parts it calls.
"""
