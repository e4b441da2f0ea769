"""Another name of :mod:`flux.resource.pool.placement`, for pools of sites that import it from here."""

from flux.resource.pool.placement import Placement, slots_on

__all__ = ("Placement", "slots_on")
