# SPDX-License-Identifier: LGPL-3.0-or-later
"""Conversion of hwloc XML to the topology read by ``TreePool``, and to R.

- ``xml.py`` reads a document with libhwloc, in a child process, since libhwloc crashes on some.
  Only this module needs the binding ``_flux_hwloc``.
- ``amend.py`` has the rules that map hwloc objects to levels, cores and GPUs.

Interface: ``amend()`` is named in the configuration of instances
(``fake-resources.amend-r=flux.resource.TreePool:amend``); ``flux R encode`` and the embedded
instance's resource service use it and ``topology_from_xml()``. The rules must agree with the
expected results in ``t/hwloc``.
"""
