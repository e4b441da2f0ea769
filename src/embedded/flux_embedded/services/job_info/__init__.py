# SPDX-License-Identifier: LGPL-3.0-or-later
"""Job data from the KVS: service ``job-info``; `service` has its methods."""
