# SPDX-License-Identifier: LGPL-3.0-or-later
import pytest
from resource_help import Resources


@pytest.fixture
def make():
    """Make instances with a resource service; they are stopped at the end."""
    made = []

    def make(*args, **kwargs):
        made.append(Resources(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def four(make):
    """Four ranks of two cores."""
    from resource_help import vm_R

    return make(4, vm_R())
