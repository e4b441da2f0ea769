# SPDX-License-Identifier: LGPL-3.0-or-later
"""Reservations: resources that an administrator keeps for a group of jobs, from one time to
another.

Which file to open
==================

``reservation``       `Reservation`: the administrator's request; immutable
``times``             starts of windows, by the wall clock of a time zone
``state``             the state of a reservation; its nodes, in the terms of the pool; the pending
                      jobs that name it
``manager``           the table of reservations; its docstring explains how they are enforced
``windows``           planned windows: promises in the plan; active ones: a placeholder in the
                      pool, and the jobs inside
``answers``           the reservation that a job waits for; reservations as answers show them
``service``           requests to make, give up and list them, the configuration, and the KVS
``rule``              the admission rule: the scheduler's only interface to this package

Compatibility: the result of `Reservation.to_dict` is stored in the KVS of running instances and
read by the next version, so keys may be added to it but not changed.
`flux.scheduler.states.WINDOW` is the state table of windows and placeholders. The fault runs
(``t/faults``) check after each step that no job outside the group holds reserved resources.
"""

from flux.scheduler.reservations.reservation import Asker, Reservation, Window

__all__ = ["Asker", "Reservation", "Window"]
