# SPDX-License-Identifier: LGPL-3.0-or-later
"""Broker modules written in Python: finding their files, and running them."""
