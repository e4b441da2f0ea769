# SPDX-License-Identifier: LGPL-3.0-or-later
"""What of the host's bindings flux.scheduler and flux.resource use, for mypy alone (scripts/check).

The bindings have no types, neither the host's nor the embedded instance's. Whoever calls something
more of them adds it here, with the types a real Flux has.
"""
