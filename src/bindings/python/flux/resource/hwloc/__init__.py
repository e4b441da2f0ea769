# SPDX-License-Identifier: LGPL-3.0-or-later
"""From hwloc XML to the topology that ``TreePool`` reads, and to R.

- ``xml.py`` reads a document with libhwloc, in a child process, since libhwloc does not survive all
  of them. It is the only module that needs the binding ``_flux_hwloc``.
- ``amend.py`` has the rules by which hwloc objects become levels, cores and GPUs.

Interface: ``amend()`` is named in the configuration of instances
(``fake-resources.amend-r=flux.resource.TreePool:amend``); ``flux R encode`` and the resource service of
the embedded instance use it and ``topology_from_xml()``. The rules have to agree with the expected
results in ``t/hwloc``.
"""
