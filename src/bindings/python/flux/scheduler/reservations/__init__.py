# SPDX-License-Identifier: LGPL-3.0-or-later
"""Reservations: resources kept by an administrator for a group of jobs, for some time.

The docstring of `rule` explains how they are enforced; that module is the scheduler's only interface
to this package. The result of `Reservation.to_dict` is stored in the KVS of running instances and
read by the next version: keys may be added to it, but not changed.
"""
