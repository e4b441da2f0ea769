# SPDX-License-Identifier: LGPL-3.0-or-later
"""Reservations: resources that an administrator keeps for a group of jobs, from one time to
another.

Which file to open
==================

``reservation``       `Reservation`: what was asked for; never changes
``times``             when windows begin, by the clock on the wall of a zone
``state``             how far a reservation is; which nodes it means, in the terms of the pool; the
                      pending jobs that name it
``manager``           how reservations are kept, told in its first lines, and the table of them
``windows``           those to come, as promises in the plan; one that lasts: a placeholder in the
                      pool, and the jobs inside
``answers``           what a job waits for on account of a reservation, and how answers show them
``service``           requests to make, give up and list them, the configuration, and the KVS
``rule``              the admission rule: all that the scheduler knows of this package

What may be touched: what `Reservation.to_dict` gives is stored in the KVS of running instances and
read by the next version, so keys are added there, not changed. Windows and placeholders go by the
table `flux.scheduler.states.WINDOW`. That nobody outside the group ever holds what is reserved is
checked by the fault runs (``t/faults``), after each step.
"""

from flux.scheduler.reservations.reservation import Asker, Reservation, Window

__all__ = ["Asker", "Reservation", "Window"]
