# SPDX-License-Identifier: LGPL-3.0-or-later
import pytest


@pytest.fixture
def inst():
    """An instance without scheduler on the virtual clock."""
    from jobs_instance import JobsInstance

    instance = JobsInstance()
    yield instance
    instance.stop()


@pytest.fixture
def sched(inst):
    """The scripted scheduler of `inst`: a job gets resources when the test says."""
    return inst.load_sched()


@pytest.fixture
def auto(inst):
    """`inst`, with a scheduler that gives each job resources at once."""
    inst.load_sched(auto=True)
    return inst


@pytest.fixture
def add(inst):
    """add(init, name="mine.py", **args) -> a jobtap Plugin whose plugin_init is `init`."""
    from flux_embedded.services.job_manager.jobtap.host import Host

    jobtap = inst.jm.jobtap

    def add(init=lambda p: None, name="mine.py", **args):
        return jobtap.add(Host(jobtap, name, f"/nowhere/{name}", args).plugin, init)

    return add


@pytest.fixture
def p(add):
    """A plugin without callbacks; tests add handlers to it."""
    return add()
