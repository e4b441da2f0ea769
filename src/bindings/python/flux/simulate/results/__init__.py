# SPDX-License-Identifier: LGPL-3.0-or-later
"""Results of a simulation: starts of jobs, files, figures, and comparisons."""
