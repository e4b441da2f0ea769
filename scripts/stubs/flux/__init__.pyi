# SPDX-License-Identifier: LGPL-3.0-or-later
"""The host's bindings as flux.scheduler and flux.resource use them, for mypy only (scripts/check).

The bindings have no types, neither the host's nor the embedded instance's. Calls of
further functions need stubs here, with the types of a real Flux.
"""
