# SPDX-License-Identifier: LGPL-3.0-or-later
"""Reading hwloc XML, and R with the topology in it."""
