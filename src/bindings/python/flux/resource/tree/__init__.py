# SPDX-License-Identifier: LGPL-3.0-or-later
"""What ``TreePool`` adds to a pool: nodes as trees of sockets, NUMA domains and the like.

Which file to open:

- ``topology.py``: the topology in R (RFC 49), checked, and what is derived from it.
- ``node.py``: where in a node slots and containers go: the rules, on masks.
- ``tree_placement.py``: which nodes a request gets.
- ``container_index.py``: how many whole containers each node has free.
- ``explain_containers.py``: why a request for containers does not fit.
- ``tree_hooks.py``: the hooks of a site as ``TreePool`` has them.

What others rely on: nobody imports these modules but ``flux/resource/TreePool.py`` and the pictures
in ``draw/`` (``topology.py``). What is placed where is described in ``doc/guide/treepool.rst``; for
slots it has to agree with recordings of flux-core's pool, apart from the differences that the guide
lists.
"""
