# SPDX-License-Identifier: LGPL-3.0-or-later
"""The parts of ``TreePool``: nodes as trees of sockets, NUMA domains and the like.

Only ``flux/resource/TreePool.py``, and the pictures in ``draw/`` (``topology.py``), import these
modules. ``doc/guide/treepool.rst`` describes placement; for slots it must agree with recordings of
flux-core's pool, except for the differences that the guide lists.
"""
