# SPDX-License-Identifier: LGPL-3.0-or-later
"""Fixtures of the tests of schedulers."""

import pytest

from flux.scheduler import forecasts


@pytest.fixture(autouse=True)
def annotations_come_at_once(monkeypatch):
    """Jobs are annotated with estimates and reasons at once, not after a quiet second.

    Most tests are about the content of annotations. Those of their timing undo this.
    """
    monkeypatch.setattr(forecasts, "QUIET_TIME_S", 0.0)
    monkeypatch.setattr(forecasts, "ESTIMATE_INTERVAL_S", 0.0)
    monkeypatch.setattr(forecasts, "ESTIMATE_REST", 0.0)
