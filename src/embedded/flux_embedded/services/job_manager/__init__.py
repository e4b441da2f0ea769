# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager: service ``job-manager`` (RFC 21, 27, 30, 32, 33).

`service.JobManager` lists its methods and connects its parts. Each file here handles one part of a job's life; its
arguments are the `Service` to send and answer with, the `Jobs`, `Events` to post to them, and the parts it calls.
"""
