# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a guest may put into a request, and what that may cost."""

import pytest
from peers import R, Rig, jobspec


@pytest.fixture
def rig():
    rig = Rig(R(8, 4))
    rig.load_file("sched-backfill")
    rig.client.userid, rig.client.rolemask = 9999, 2
    return rig


def when(rig, **system):
    errnum, answer = rig.ask("sched.when", {"jobspec": jobspec(1, **system)})
    return (answer if errnum else answer["verdict"]), answer


# -- hostlists and idsets that name more than there is ---------------------------------------------


@pytest.mark.parametrize(
    "hosts",
    [
        ["e0[0-999999999999999999]"],
        [f"d{n}[0-20000000]" for n in range(2000)],
        ["n1[000000-999999]-ib", "n[00-99999999]"],
    ],
)
def test_hosts_that_are_not_there_are_not_listed(rig, hosts):
    assert when(rig, constraints={"hostlist": hosts})[0] == "never"
    assert when(rig, constraints={"not": [{"hostlist": hosts}]})[0] == "now"
    assert when(rig, constraints={"hostlist": [*hosts, "n[0-999999999999999999]"]})[0] == "now"


@pytest.mark.parametrize(
    "constraint",
    [
        {"hostlist": ["n[0-1048574]x0"]},
        {"hostlist": ["n" * 256]},
        {"hostlist": ["n" * 250 + "[" + ",".join(["1"] * 10001) + "]"]},
        {"properties": ["^none"] * 10001},
        {"or": [{"properties": []}] * 10001},
        {"ranks": [",".join(map(str, range(0, 400000, 2)))]},
        {"properties": ["p" * 1000000]},
    ],
)
def test_a_constraint_that_costs_too_much_is_refused(rig, constraint):
    assert "invalid hostlist" in (said := when(rig, constraints=constraint)[0]) or "terms" in said
    rig.client.userid, rig.client.rolemask = 0, 1
    rig.alloc(1, jobspec(1, constraints=constraint))
    rig.alloc(2, jobspec(1))
    rig.settle()
    assert "cannot parse jobspec" in rig.denied(1) and rig.started() == [2]
