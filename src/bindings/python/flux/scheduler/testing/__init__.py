# SPDX-License-Identifier: LGPL-3.0-or-later
"""For tests of schedulers: jobspecs and resources to test with."""

from flux.scheduler.testing.builders import jobspec, make_R

__all__ = ["jobspec", "make_R"]
