# SPDX-License-Identifier: LGPL-3.0-or-later
"""Drain, status, reload: an administrator's requests and the texts of the answers."""

import errno

import pytest
from in_process import refused
from resource_help import vm_R


@pytest.mark.parametrize(
    "method, body, number, text",
    [
        ("drain", {"targets": "1"}, errno.EEXIST, "rank 1 already drained"),
        ("drain", {"targets": "0-1", "reason": "x"}, errno.EEXIST, "rank 1 already drained"),
        ("drain", {"targets": "1-2"}, errno.EEXIST, "ranks 1-2 already drained"),
        ("drain", {"targets": "99"}, errno.EINVAL, "idset is out of range"),
        ("drain", {"targets": "foo"}, errno.EINVAL, "invalid targets: invalid hosts: foo"),
        ("drain", {"targets": "vm["}, errno.EINVAL, "invalid targets: "),
        ("drain", {}, errno.EPROTO, "Protocol error"),
        ("drain", {"targets": ""}, errno.EINVAL, "idset is empty"),
        ("drain", {"targets": "3", "reason": 7}, errno.EPROTO, "Protocol error"),
        ("undrain", {"targets": "3"}, errno.EEXIST, "rank 3 not drained"),
        ("undrain", {"targets": "99"}, errno.EINVAL, "idset is out of range"),
        *((one, {"targets": "2", "mode": "x"}, errno.EINVAL, "") for one in ("drain", "undrain")),
        *((one, {"targets": "2", "mode": 1}, errno.EPROTO, "") for one in ("drain", "undrain")),
    ],
)
def test_drain_errors(four, method, body, number, text):
    four.call("drain", targets="1", reason="some reason")
    four.call("drain", targets="2")
    # the reason that was not given may come later
    drained = four.kernel.now()
    four.kernel.set_time(drained + 5)
    four.call("drain", targets="2", reason="known by now")
    found = four.fails(method, **body)
    assert found[0] == number and found[1].startswith(text)
    assert four.call("status")["drain"] == {
        "1": {"timestamp": drained, "reason": "some reason"}, "2": {"timestamp": drained, "reason": "known by now"},
    }  # fmt: skip


def test_modes_of_drain(four):
    """As flux-core 0.88 does: a missing reason is added, `overwrite` replaces it, `force-overwrite` the time as well."""

    def drained():
        found = four.call("status")["drain"].items()
        return {ranks: (info["timestamp"] - first, info["reason"]) for ranks, info in found}

    four.call("drain", targets="1")
    first = four.kernel.now()
    for seconds, mode, targets, reason, expected in (
        (1, "update", "1", "why", {"1": (0, "why")}),
        (2, "update", "1-2", "other", {"1": (0, "why"), "2": (2, "other")}),
        (3, "overwrite", "1", "new", {"1": (0, "new"), "2": (2, "other")}),
        (4, "overwrite", "1", "", {"1": (0, ""), "2": (2, "other")}),
        (5, "force-overwrite", "1-2", "forced", {"1-2": (5, "forced")}),
    ):
        four.kernel.set_time(first + seconds)
        four.call("drain", targets=targets, mode=mode, reason=reason)
        assert drained() == expected
        four.reload_module("noverify")
        assert drained() == expected
    for mode in ("update", "overwrite", "force-overwrite"):
        four.call("undrain", targets="0-1", mode=mode)
        assert drained() == {"2": (5, "forced")}


EMPTY = {
    "version": 1,
    "execution": {"R_lite": [], "starttime": 0.0, "expiration": 0.0, "nodelist": [""]},
}


def test_sched_status(make):
    R = vm_R(hosts="n[0-3]", properties={"small": "2-3", "big": "0-1"})
    there = make(4, {**R, "scheduling": {"mykey": [1, 2]}}, hosts=[f"n{i}" for i in range(4)])
    assert there.call("sched-status") == {"all": R, "down": EMPTY, "allocated": EMPTY}
    assert there.call("status")["R"] == R
    there.call("drain", targets="3")
    down = vm_R("3", hosts="n3", properties={"small": "3"})
    assert there.call("sched-status") == {"all": R, "down": down, "allocated": EMPTY}


def test_reload(four):
    holder = four.holder()
    assert four.fails("reload", R=vm_R()) == (errno.EBUSY, "resources are busy (unload scheduler?)")
    holder.leave()
    big = vm_R("0-9", "0", ",".join(["vm"] * 10))
    text = "R has ranks beyond size=4 (override with -f)"
    assert four.fails("reload", R=big) == (errno.EINVAL, text)
    assert four.stored_R() == vm_R()
    four.call("drain", targets="1,3")
    four.call("reload", R=big, force=True)
    assert four.stored_R() == big and four.acquire().take() == [{"resources": big, "up": "0,2,4-9"}]
    assert four.events()[-1] == ("resource-define", {"method": "reload"})


@pytest.mark.parametrize(
    "R, text",
    [
        ({}, "R.version is missing"),
        ({"version": 2}, "R.version: expected 1, got 2"),
        (vm_R(hosts="a"), "R.execution.nodelist: 1 hosts for 4 ranks"),
        (vm_R(ranks="3-1"), "R.execution.R_lite[0].rank: "),
    ],
)
def test_reload_of_nonsense(four, R, text):
    number, found = four.fails("reload", R=R)
    assert number == errno.EINVAL and found.startswith(text)
    assert four.stored_R() == vm_R()


def test_hosts_are_verified(make, capfd):
    """Broker ranks on other hosts than the inventory's are drained; ranks without a broker are not."""
    there = make(2, services=("kvs",))
    there.store_R(vm_R("0-3", hosts="fake[0-3]"))
    there.load_module("resource")
    reason = "rank 1 got hostname 'vm', expected 'fake1'"
    assert there.drained() == {"1": reason}
    assert f"resource.err[1]: draining: {reason}\n" in capfd.readouterr().err
    assert there.acquire().take()[0]["up"] == "0,2-3"


def test_bad_module_argument_and_configuration(make, capfd):
    there = make(1, services=("kvs",))
    refused(errno.EINVAL, there.load_module, "resource", "bogus")
    for conf, text in (
        ({"config": []}, "resource.config: expected an array with at least one table"),
        ({"exclude": "nosuch"}, "resource.exclude: invalid targets: invalid hosts: nosuch"),
        (3, "resource: expected a table"),
    ):
        there.ctx.config = {"resource": conf}
        refused(errno.EINVAL, there.load_module, "resource")
        assert text in capfd.readouterr().err


def test_without_a_kvs(make):
    there = make(2, services=("resource",))
    there.call("drain", targets="0")
    assert list(there.drained()) == ["0"]
