# SPDX-License-Identifier: LGPL-3.0-or-later
"""The parts of resource pools. No module here knows of schedulers or of future times.

Which file to open:

- ``contract.py``: the methods that a pool must define.
- ``inventory.py``: ranks with their resources; explains *units* and *selection*.
- ``state.py``: the mutable state of a pool: free units, indexed by their numbers, jobs with their
  units and ends, ranks that are up.
- ``placement.py``: the ranks and units that a request gets, by worst fit or best fit.
- ``rank_counts.py``: counts of jobs on each rank.
- ``hooks.py``: the methods by which a site orders or chooses candidates.
- ``explain.py``: the reason why a request does not fit, in numbers and in a sentence.
- ``constraint.py``: constraints of jobspecs (RFC 31). ``rv1.py``: reading R (RFC 20). ``hosts.py``:
  hostlists (RFC 29). ``masks.py``: sets of ranks and of cores as integers, and their idset text
  (RFC 22). ``jobid.py``: job ids as text.

Interfaces: sites' pools import ``masks`` and ``placement``, and get an ``Inventory``, a
``RankIndex`` and selections; the guide describes the hooks and their candidates. ``explain.py``
writes the sentences of flux-core that scripts look for, and those in ``flux jobs``. The rest
(``state.py``, ``rv1.py``, ``hosts.py``, ``constraint.py``) serves only ``Rv1Pool``, ``TreePool``
and the pictures in ``draw/``.
"""
