# SPDX-License-Identifier: LGPL-3.0-or-later
"""Text formats of the Flux RFCs, one file each.

Nothing in here needs an instance: the functions take and return plain Python
values, raise ``ValueError`` with a description of the error in the input, and
take time and memory in proportion to the length of the text.
"""
