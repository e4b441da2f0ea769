# SPDX-License-Identifier: LGPL-3.0-or-later
"""Conversion of hwloc XML (``xml.py``) to the topology read by ``TreePool``, and to R (``amend.py``).

``amend()`` is named in the configuration of instances
(``fake-resources.amend-r=flux.resource.TreePool:amend``); ``flux R encode`` and the embedded
instance's resource service use it and ``topology_from_xml()``. The results must be those in
``t/hwloc``.
"""
