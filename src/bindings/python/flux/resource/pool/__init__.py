# SPDX-License-Identifier: LGPL-3.0-or-later
"""The parts of resource pools. No module here knows of schedulers or of time to come.

Which file to open:

- ``contract.py``: the methods that a pool has to define.
- ``inventory.py``: ranks with their resources. The words *units* and *selection* are explained there.
- ``rank_index.py``: free units, indexed by their numbers.
- ``state.py``: the mutable state of a pool: free units, the jobs with their units and ends, which
  ranks are up.
- ``placement.py``: which ranks and which units a request gets.
- ``rank_counts.py``: how many jobs of some kind are on each rank.
- ``hooks.py``: the methods with which a site orders or chooses candidates itself.
- ``explain.py``: why a request does not fit, in numbers and in a sentence.
- ``constraint.py``: constraints of jobspecs (RFC 31). ``rv1.py``: reading R (RFC 20). ``hosts.py``:
  host names (RFC 29). ``masks.py``: sets of ranks and of cores as integers, and their idset text
  (RFC 22). ``jobid.py``: job ids as text.

Interfaces: pools of sites import ``masks`` and ``placement``, and are given an
``Inventory``, a ``RankIndex`` and selections; the hooks and their candidates are described in the
guide. ``explain.py`` writes sentences that scripts look for where they are flux-core's, and that
users see in ``flux jobs``. The rest (``state.py``, ``rv1.py``, ``hosts.py``, ``constraint.py``)
serves ``Rv1Pool`` and ``TreePool`` alone, and the pictures in ``draw/``.

A change that makes an allocation slower shows in ``t/bench/pool``.
"""
