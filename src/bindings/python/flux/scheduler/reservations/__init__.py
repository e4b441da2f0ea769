# SPDX-License-Identifier: LGPL-3.0-or-later
"""Resources that are kept for a group of jobs at a time given ahead: see `Reservation`."""

from flux.scheduler.reservations.reservation import Asker, Reservation, Window

__all__ = ["Asker", "Reservation", "Window"]
