# SPDX-License-Identifier: LGPL-3.0-or-later
"""The parts of ``TreePool``: nodes as trees of sockets, NUMA domains and the like.

Which file to open:

- ``topology.py``: the topology in R (RFC 49), checked, and the layout derived from it.
- ``node.py``: where in a node slots and containers go: the rules, on masks.
- ``tree_placement.py``: which nodes a request gets.
- ``container_index.py``: how many whole containers each node has free.
- ``explain_containers.py``: why a request for containers does not fit.
- ``tree_hooks.py``: the hooks of a site as ``TreePool`` has them.

Interfaces: only ``flux/resource/TreePool.py`` imports these modules, and the pictures
in ``draw/`` (``topology.py``). Placement is described in ``doc/guide/treepool.rst``; for
slots it has to agree with recordings of flux-core's pool, apart from the differences that the guide
lists.
"""
