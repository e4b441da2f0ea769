# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager: service ``job-manager`` (RFC 21, 27, 30, 32, 33).

`service.JobManager` lists its methods and makes its parts. Each file here is one `part.Part`: the actions of a part of a job's life,
and the handlers of requests about it.
"""
