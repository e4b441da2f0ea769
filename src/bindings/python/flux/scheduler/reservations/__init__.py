# SPDX-License-Identifier: LGPL-3.0-or-later
"""Reservations: resources kept by an administrator for a group of jobs, for some time.

Files
=====

``reservation``       `Reservation`, the administrator's request, immutable; its state, its nodes
                      in the pool's terms, and the pending jobs of its group
``windows``           planned windows: promises in the plan; active ones: a placeholder in the
                      pool, and the jobs inside
``answers``           the reservation that a job waits for; descriptions of reservations
``rule``              the admission rule, with the table of reservations: the scheduler's only
                      interface to this package; its docstring explains how they are enforced;
                      requests to make, give up and list reservations; configuration; KVS

Compatibility: the result of `Reservation.to_dict` is stored in the KVS of running instances and
read by the next version: keys may be added to it, but not changed. The fault runs (``t/faults``)
check after each step that no job outside the group holds reserved resources.
"""
