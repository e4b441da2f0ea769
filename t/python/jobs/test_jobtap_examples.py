# SPDX-License-Identifier: LGPL-3.0-or-later
"""The example plugins that come with the instance; t/t2204-jobtap-examples.t runs all of them, on either host."""

import errno
import pwd

import pytest
from in_process import refused

from flux.scheduler.testing import make_R
from flux_engine.kernel.message import OWNER

DEPEND, PRIORITY, SCHED, RUN, INACTIVE = 2, 4, 8, 16, 64


def load(inst, name):
    inst.jobtap(load=name)
    return inst.jm.jobtap.plugins[-1]


def test_alloc_bypass_takes_a_resource_set_of_the_owner(inst):
    load(inst, "alloc-bypass.py")
    asked = {"alloc-bypass": {"R": {"version": 2}}}
    assert "not a resource set" in refused(errno.EINVAL, inst.submit, **asked)
    inst.as_user(1234)
    asked = {"alloc-bypass": {"R": make_R()}}
    assert "Guest user cannot use alloc bypass" in refused(errno.EINVAL, inst.submit, **asked)


def test_dependency_file_logs_nothing_when_a_waiting_job_is_canceled(inst, tmp_path):
    load(inst, "dependency-file.py")
    id = inst.submit(dependencies=[{"scheme": "file", "value": str(tmp_path / "none")}])
    inst.cancel(id)
    assert inst.state(id) == INACTIVE
    assert not [line for line in inst.logged() if "dependency-file" in line]


ACCESS = {
    "queues": {
        "open": {},
        "debug": {"policy": {"access": {"allow-user": ["daemon"], "allow-group": ["bin"]}}},
        "quick": {"parent": "debug"},
        "slow": {"parent": "debug", "policy": {"access": {"allow-user": ["bin"]}}},
    }
}


@pytest.fixture
def guarded(inst):
    """Users and groups are those that each Unix has."""
    inst.rpc("config.load", ACCESS)
    load(inst, "queue-access.py")
    return inst


def submits(inst, user, queue=None):
    """Submit as a user, a name or a number."""
    inst.as_user(user if isinstance(user, int) else pwd.getpwnam(user).pw_uid)
    return inst.submit(**({"queue": queue} if queue else {}))


@pytest.mark.parametrize(
    "user, queue, may",
    [
        (OWNER, "debug", True),
        ("nobody", "open", True),
        ("daemon", "debug", True),
        ("bin", "debug", True),  # by its group
        ("nobody", "debug", False),
        (64321, "debug", False),  # a user without a name
        ("daemon", "quick", True),
        ("nobody", "quick", False),
        ("bin", "slow", True),
        ("daemon", "slow", False),
    ],
)
def test_who_may_submit_to_a_queue(guarded, user, queue, may):
    if may:
        assert submits(guarded, user, queue)
    else:
        text = f"user {user} may not submit to queue {queue}"
        assert text in refused(errno.EINVAL, submits, guarded, user, queue)


def test_a_user_cannot_move_a_job_to_the_queue_of_others(guarded):
    id = submits(guarded, "nobody", "open")
    text = "user nobody may not submit to queue debug"
    assert text in refused(errno.EINVAL, guarded.update, id, queue="debug")


def test_a_new_configuration_counts_at_once_and_a_wrong_one_not_at_all(guarded):
    inst = guarded
    wrong = {"queues": {"debug": {"policy": {"access": {"allow-user": [7]}}}}}
    assert "allow-user" in refused(errno.EINVAL, inst.rpc, "config.load", wrong)
    assert "may not submit" in refused(errno.EINVAL, submits, inst, "nobody", "debug")
    inst.as_user()
    inst.rpc("config.load", {"queues": {"debug": {}}})
    assert submits(inst, "nobody", "debug")
    inst.as_user()
    inst.rpc("config.load", {"policy": {"access": {"allow-user": ["daemon"]}}})
    text = "user nobody may not submit to this instance"
    assert text in refused(errno.EINVAL, submits, inst, "nobody")
