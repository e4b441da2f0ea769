# SPDX-License-Identifier: LGPL-3.0-or-later
"""Text formats of the Flux RFCs, one file each.

Nothing in here needs an instance: the functions take and return plain Python
values, raise ``ValueError`` naming what is wrong with the input, and need time
and memory in proportion to the text they are given, whatever it says.
"""
