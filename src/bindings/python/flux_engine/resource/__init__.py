# SPDX-License-Identifier: LGPL-3.0-or-later
"""The resource service's side of a scheduler (RFC 28): what there is, which ranks are up, and the acquire stream."""
