# SPDX-License-Identifier: LGPL-3.0-or-later
"""The example plugins that come with the instance; t/t2204-jobtap-examples.t runs all of them, on either host."""

import pwd

import pytest

from flux.scheduler.testing import make_R

DEPEND, PRIORITY, SCHED, RUN, INACTIVE = 2, 4, 8, 16, 64


def load(inst, name):
    inst.jobtap(load=name)
    return inst.jm.jobtap.plugins[-1]


# -- alloc-bypass -------------------------------------------------------------------------------------


def test_alloc_bypass_takes_a_resource_set_of_the_owner(inst):
    load(inst, "alloc-bypass.py")
    with pytest.raises(OSError, match="not a resource set"):
        inst.submit(**{"alloc-bypass": {"R": {"version": 2}}})
    inst.as_user(1234)
    with pytest.raises(OSError, match="Guest user cannot use alloc bypass"):
        inst.submit(**{"alloc-bypass": {"R": make_R()}})


# -- dependency-file --------------------------------------------------------------------------------


def test_dependency_file_logs_nothing_when_a_waiting_job_is_canceled(inst, tmp_path):
    load(inst, "dependency-file.py")
    id = inst.submit(dependencies=[{"scheme": "file", "value": str(tmp_path / "none")}])
    inst.cancel(id)
    assert inst.state(id) == INACTIVE
    assert not [line for line in inst.logged() if "dependency-file" in line]


# -- queue-access -------------------------------------------------------------------------------------

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


def submits(inst, userid, queue):
    inst.as_user(userid)
    return inst.submit(**({"queue": queue} if queue else {}))


@pytest.mark.parametrize(
    "user, queue, may",
    [
        ("nobody", "open", True),
        ("daemon", "debug", True),
        ("bin", "debug", True),  # by its group
        ("nobody", "debug", False),
        ("daemon", "quick", True),
        ("nobody", "quick", False),
        ("bin", "slow", True),
        ("daemon", "slow", False),
    ],
)
def test_who_may_submit_to_a_queue(guarded, user, queue, may):
    userid = pwd.getpwnam(user).pw_uid
    if may:
        assert submits(guarded, userid, queue)
    else:
        with pytest.raises(OSError, match=f"user {user} may not submit to queue {queue}"):
            submits(guarded, userid, queue)


def test_the_owner_may_and_a_user_without_a_name_may_not(guarded):
    assert guarded.submit(queue="debug")
    with pytest.raises(OSError, match="user 64321 may not submit to queue debug"):
        submits(guarded, 64321, "debug")


def test_a_user_cannot_move_a_job_to_the_queue_of_others(guarded):
    userid = pwd.getpwnam("nobody").pw_uid
    id = submits(guarded, userid, "open")
    update = {"id": id, "updates": {"attributes.system.queue": "debug"}}
    with pytest.raises(OSError, match="user nobody may not submit to queue debug"):
        guarded.rpc("job-manager.update", update)


def test_a_new_configuration_counts_at_once_and_a_wrong_one_not_at_all(guarded):
    userid = pwd.getpwnam("nobody").pw_uid
    inst, task = guarded, guarded.handle.task
    owner = task.userid, task.rolemask
    wrong = {"queues": {"debug": {"policy": {"access": {"allow-user": [7]}}}}}
    with pytest.raises(OSError, match="allow-user"):
        inst.rpc("config.load", wrong)
    with pytest.raises(OSError, match="may not submit"):
        submits(inst, userid, "debug")
    task.userid, task.rolemask = owner
    inst.rpc("config.load", {"queues": {"debug": {}}})
    assert submits(inst, userid, "debug")
    task.userid, task.rolemask = owner
    inst.rpc("config.load", {"policy": {"access": {"allow-user": ["daemon"]}}})
    with pytest.raises(OSError, match="user nobody may not submit to this instance"):
        submits(inst, userid, None)
