# SPDX-License-Identifier: LGPL-3.0-or-later
"""What the tests of schedulers share."""

import pytest

from flux.scheduler import forecasts


@pytest.fixture(autouse=True)
def annotations_come_at_once(monkeypatch):
    """Users are told at once when their jobs start and why they wait, not after a quiet second.

    Most tests are about what they are told. Those of when set this back.
    """
    monkeypatch.setattr(forecasts, "QUIET_TIME_S", 0.0)
    monkeypatch.setattr(forecasts, "ESTIMATE_INTERVAL_S", 0.0)
    monkeypatch.setattr(forecasts, "ESTIMATE_REST", 0.0)
