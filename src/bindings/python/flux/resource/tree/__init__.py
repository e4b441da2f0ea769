# SPDX-License-Identifier: LGPL-3.0-or-later
"""The parts of ``TreePool``: nodes as trees of sockets, NUMA domains and the like.

Which file to open:

- ``topology.py``: the topology in R (RFC 49), checked, and the layout derived from it.
- ``node.py``: the rules for slots and containers within a node, on masks.
- ``tree_placement.py``: the nodes that a request gets.

Interfaces: only ``flux/resource/TreePool.py``, and the pictures in ``draw/`` (``topology.py``),
import these modules. ``doc/guide/treepool.rst`` describes placement; for slots it must agree with
recordings of flux-core's pool, except for the differences that the guide lists.
"""
