# SPDX-License-Identifier: LGPL-3.0-or-later
"""The resource service's side of a scheduler (RFC 28): the inventory, the ranks that are up, and the acquire stream."""
