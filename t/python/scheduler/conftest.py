# SPDX-License-Identifier: LGPL-3.0-or-later
"""Fixtures of the tests of schedulers."""

import gc

import pytest
from peers import check_tables

from flux.scheduler import forecasts
from flux.scheduler.testing import FakeInstance


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
    """Objects of other tests, not all collected yet, do not count."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def tables_agree_at_the_end(monkeypatch):
    """Those of the scheduler that a test has loaded last, unless it has ended, or never began."""
    last, load = [None], FakeInstance.load

    def loaded(self, *args, **keys):
        last[0] = self
        return load(self, *args, **keys)

    monkeypatch.setattr(FakeInstance, "load", loaded)
    yield
    (instance,) = last
    if instance is not None and instance.is_loaded and hasattr(instance.scheduler, "resources"):
        check_tables(instance)
