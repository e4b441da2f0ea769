# SPDX-License-Identifier: LGPL-3.0-or-later
"""Fixtures of the tests of schedulers."""

import gc

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


@pytest.fixture
def only_new_objects():
    """Objects of other tests, some of which are yet to go, do not count."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
