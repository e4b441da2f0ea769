# SPDX-License-Identifier: LGPL-3.0-or-later
"""Plans: which jobs start when, as running jobs end."""

from flux.resource.plan.plan import Plan

__all__ = ("Plan",)
