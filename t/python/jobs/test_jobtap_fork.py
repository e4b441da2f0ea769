# SPDX-License-Identifier: LGPL-3.0-or-later
"""A child process that a plugin forks does not go on as a second job manager."""

import os

import pytest

from flux.jobtap import process_guard


@pytest.mark.parametrize("error, status", [(None, 0), (ValueError("in the child"), 1)])
def test_a_child_that_comes_back_is_ended(monkeypatch, error, status):
    monkeypatch.setattr(process_guard, "_job_manager", os.getpid())
    process_guard.end_child()  # in the job manager itself nothing happens
    pid = os.fork()
    if not pid:
        try:
            if error:
                raise error
        finally:
            process_guard.end_child()
        os._exit(77)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status


def test_a_child_with_plugins_of_its_own_goes_on(monkeypatch):
    """As a run of ``flux simulate --engine=instance`` does below a program that has had an instance."""

    class Host:
        def is_running_plugin(self):
            return False

    monkeypatch.setattr(process_guard, "_job_manager", process_guard._job_manager)
    there, own = Host(), Host()
    process_guard.install(there)
    pid = os.fork()
    if not pid:
        process_guard.install(own)
        process_guard.end_child()
        os._exit(77)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 77
