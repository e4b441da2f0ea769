# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's side of a scheduler (RFC 27): jobs, queues, and requests for resources."""
