# SPDX-License-Identifier: LGPL-3.0-or-later
"""Random histories against plain sets: the holder of the stream knows the true state, and every delta is exact."""

import random

import pytest
from resource_help import vm_R

from flux_engine.formats import idset

RANKS = range(6)


def text(ranks):
    return idset.encode(idset.from_ids(ranks))


def members(value):
    return set(idset.members(idset.decode(value)))


class Model:
    """The state as plain sets of ranks."""

    def __init__(self):
        self.there = set(RANKS)
        self.drained, self.offline, self.lost = set(), set(), set()
        self.fast = set()

    def up(self):
        return self.there - self.drained - self.offline - self.lost


class Mirror:
    """A scheduler's state, from the messages it receives."""

    def __init__(self, first):
        self.known = set()
        for entry in first["resources"]["execution"]["R_lite"]:
            self.known |= members(entry["rank"])
        self.up = members(first["up"])
        self.fast = members(first["resources"]["execution"].get("properties", {}).get("fast", ""))
        assert self.up <= self.known

    def apply(self, update):
        keys = {"up", "down", "shrink", "property-add", "property-remove"}
        assert update and set(update) <= keys, update
        assert "" not in update.values()
        up, down, shrink = (members(update.get(key, "")) for key in ("up", "down", "shrink"))
        add = members(update.get("property-add", {}).get("fast", ""))
        remove = members(update.get("property-remove", {}).get("fast", ""))
        assert up | down | shrink | add | remove <= self.known
        assert not up & self.up and not up & down
        assert down - shrink <= self.up and shrink <= down
        assert not add & self.fast and remove <= self.fast
        self.up = (self.up | up) - down
        self.known -= shrink
        self.fast = ((self.fast - remove) | add) & self.known


def step(rng, there, model, gone):
    """Do one random thing; ranks the holder must forget are added to `gone`."""
    name = rng.choice("drain undrain offline online shrink lose add remove".split())
    if not model.there:
        return
    ranks = set(rng.sample(sorted(model.there), rng.randint(1, len(model.there))))
    targets = text(ranks)
    if name == "drain":
        there.call("drain", targets=targets)
        model.drained |= ranks
    elif name == "undrain":
        if ranks & model.drained:
            there.call("undrain", targets=text(ranks & model.drained))
        model.drained -= ranks
    elif name == "offline":
        there.call("offline", targets=targets)
        model.offline |= ranks
        gone |= ranks
    elif name == "online":
        there.call("online", targets=targets)
        model.offline -= ranks
    elif name == "shrink":
        ranks = {min(ranks)}
        if len(model.there) > 1:
            there.call("shrink", targets=text(ranks))
            gone |= ranks
            model.offline |= ranks
    elif name == "lose":
        rank = max(ranks)
        if rank and rank not in model.lost:
            there.call("overlay.disconnect", rank=rank)
            model.lost.add(rank)
            gone.add(rank)
    else:
        there.call(f"property-{name}", name="fast", targets=targets)
        model.fast = model.fast | ranks if name == "add" else model.fast - ranks


@pytest.mark.parametrize("seed", range(16))
def test_history(make, capfd, seed):
    rng = random.Random(seed)
    there = make(6, vm_R("0-5", hosts="n[0-5]"))
    model = Model()
    holder = there.acquire()
    mirror = Mirror(holder.take()[0])
    forgotten = set()
    for _ in range(40):
        if rng.random() < 0.1:  # another scheduler: all is told anew
            holder.leave()
            holder = there.acquire()
            mirror = Mirror(holder.take()[0])
            forgotten = set()
        gone = set()
        step(rng, there, model, gone)
        forgotten |= gone
        for update in holder.take():
            mirror.apply(update)
        assert mirror.known == model.there - forgotten
        assert mirror.up == model.up() - forgotten
        assert mirror.fast == model.fast & mirror.known
        status = there.call("status")
        assert members(status["online"]) == model.there - model.offline - model.lost
        assert set().union(*map(members, status["drain"])) == model.drained & model.there
        lite = there.call("sched-status")["down"]["execution"]["R_lite"]
        down = set().union(*(members(entry["rank"]) for entry in lite))
        assert down == model.there - model.up()
    capfd.readouterr()
