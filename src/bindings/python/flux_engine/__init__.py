# SPDX-License-Identifier: LGPL-3.0-or-later
"""The engine that runs schedulers without a Flux, for `flux.scheduler.testing`, `flux.simulate` and the embedded instance.

doc/reference/layout.rst has its layers, each of which imports only earlier ones. It requires greenlet.
"""
