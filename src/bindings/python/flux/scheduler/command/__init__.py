# SPDX-License-Identifier: LGPL-3.0-or-later
"""The command ``flux sched``: asks the scheduler's services, and shows what they answer."""
