# SPDX-License-Identifier: LGPL-3.0-or-later
import pytest
from broker_help import Broker


@pytest.fixture
def broker(tmp_path):
    broker = Broker(tmp_path)
    yield broker
    broker.stop()
