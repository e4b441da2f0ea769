# SPDX-License-Identifier: LGPL-3.0-or-later
"""Two ways to run a scheduler's module on a list of jobs: `lean` and `instance`."""
