"""Another name of :mod:`flux.resource.plan`, for code that imports it from here."""

from flux.resource.plan.plan import Plan

__all__ = ("Plan",)
