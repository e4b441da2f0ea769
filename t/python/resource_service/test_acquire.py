# SPDX-License-Identifier: LGPL-3.0-or-later
"""``resource.acquire`` (RFC 28), message by message."""

import errno

import pytest
from in_process import refused
from resource_help import vm_R


def test_one_holder_at_a_time(four):
    holder = four.holder()
    other = four.acquire("other")
    assert refused(errno.EBUSY, other.future.get) == "Device or resource busy"
    four.call("drain", targets="1")
    assert holder.take() == [{"down": "1"}]
    holder.leave()
    # The one before us is forgotten: a full first response, not a delta.
    (first,) = four.acquire("other").take()
    assert first["up"] == "0,2-3" and first["resources"] == vm_R()


def test_a_holder_is_told_that_the_service_is_unloaded(four):
    holder = four.holder()
    four.unload("resource")
    assert refused(errno.ECANCELED, holder.future.get) == "the resource module was unloaded"


def test_guests_and_strangers(four):
    guest = four.client("guest", userid=1234, rolemask=2)
    for topic in ("acquire", "drain", "undrain", "reload", "shrink", "expiration-update"):
        refused(errno.EPERM, guest.rpc(f"resource.{topic}", {}, flags=2).get)
    assert guest.rpc("resource.sched-status").get()["all"] == vm_R()
    holder = four.holder()
    guest.rpc("resource.disconnect", flags=1)  # of a sender that is not the holder
    four.call("drain", targets="0")
    assert holder.take() == [{"down": "0"}]


def test_ranks_of_a_configuration_do_not_shrink(make):
    config = [{"hosts": "fake[0-3]", "cores": "0-3", "gpus": "0"}]
    there = make(4, conf={"resource": {"noverify": True, "config": config}})
    holder = there.acquire()
    assert holder.take()[0]["resources"]["execution"]["nodelist"] == ["fake[0-3]"]
    there.call("overlay.disconnect", rank=3)
    assert holder.take() == [{"down": "3"}]
    there.call("overlay.join", ranks="3")
    assert holder.take() == [{"up": "3"}]


def test_properties(make):
    there = make(4, vm_R(properties={"old": "0-3"}))
    holder = there.holder()
    there.call("property-add", name="fast", targets="1")
    there.call("property-remove", name="old", targets="0-3")
    there.call("property-remove", name="nosuch", targets="0")
    assert holder.take() == [{"property-add": {"fast": "1"}}, {"property-remove": {"old": "0-3"}}]
    assert there.stored_R()["execution"]["properties"] == {"fast": "1"}
    for name in ("", "a!b", "a|b", 3, None):
        assert there.fails("property-add", name=name, targets="0")[0] == errno.EINVAL
    there.call("shrink", targets="1")
    assert holder.take() == [{"down": "1", "shrink": "1"}]


def test_expiration(four):
    holder = four.holder()
    four.call("expiration-update", expiration=2000000000.5)
    assert holder.take() == [{"expiration": 2000000000.5}]
    four.call("expiration-update", expiration=2000000000.5)
    assert holder.take() == []
    assert four.stored_R()["execution"]["expiration"] == 2000000000.5
    four.call("expiration-update", expiration=0)
    assert holder.take() == [{"expiration": 0}]
    updates = [context for name, context in four.events() if name == "resource-update"]
    assert updates == [{"expiration": 2000000000.5}, {"expiration": 0}]
    assert four.fails("expiration-update", expiration=-1)[0] == errno.EINVAL
    for value in ("x", None, True, [1]):
        assert four.fails("expiration-update", expiration=value)[0] == errno.EPROTO


@pytest.mark.parametrize(
    "exclude, ranks, left, hosts",
    [("3", "3", "0-2", "n[0-2]"), ("n[0,2]", "0,2", "1,3", "n[1,3]")],
)
def test_excluded_at_start(make, exclude, ranks, left, hosts):
    names = [f"n{i}" for i in range(4)]
    there = make(4, vm_R(hosts="n[0-3]"), hosts=names, conf={"resource": {"exclude": exclude}})
    holder = there.acquire()
    (first,) = holder.take()
    assert first == {"resources": vm_R(left, hosts=hosts), "up": left}
    status = there.call("status")
    assert status["R"] == vm_R(hosts="n[0-3]") and status["exclude"] == ranks
    # A change takes effect when the module is loaded anew, not before.
    there.call("config.load", {})
    assert holder.take() == []
    holder.leave()
    there.reload_module()
    assert there.acquire().take() == [{"resources": vm_R(hosts="n[0-3]"), "up": "0-3"}]


def test_all_excluded(make):
    there = make(2, vm_R("0-1", hosts="vm,vm"), conf={"resource": {"exclude": "0-1"}})
    empty = {"R_lite": [], "starttime": 0.0, "expiration": 0.0, "nodelist": [""]}
    assert there.acquire().take() == [{"resources": {"version": 1, "execution": empty}, "up": ""}]
