# SPDX-License-Identifier: LGPL-3.0-or-later
"""Job submission: service ``job-ingest``; `service` has its methods."""
