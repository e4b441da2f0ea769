# SPDX-License-Identifier: LGPL-3.0-or-later
import pytest


@pytest.fixture
def inst():
    """An instance without scheduler on the virtual clock."""
    from jobs_instance import JobsInstance

    instance = JobsInstance()
    yield instance
    instance.stop()
