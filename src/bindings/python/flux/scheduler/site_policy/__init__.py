# SPDX-License-Identifier: LGPL-3.0-or-later
"""Site policy from configuration tables: limits, licences, sharing of nodes and others.

Each feature is a `table_rule.TableRule`, an `AdmissionRule` in its own file, enabled by its own
table. Without the table it is not among a scheduler's rules, and costs nothing.
"""
