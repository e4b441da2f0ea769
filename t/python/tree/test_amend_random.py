# SPDX-License-Identifier: LGPL-3.0-or-later
"""Random machines: what comes through libhwloc is what the description says.

The expected topology is worked out on the description, with sets of core numbers.
"""

import hwloc_xml as hx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shared import runs

from flux.resource.hwloc.amend import topology_from_xml
from flux.resource.pool.masks import idset_text

BACKENDS = ("CUDA", "NVML", "RSMI", "OpenCL", "LevelZero")


@st.composite
def machines(draw):
    """A machine of packages, perhaps dies and caches, memory at one kind of them, cards anywhere."""
    with_dies, with_caches = draw(st.booleans()), draw(st.booleans())
    places = ["Machine", "Package"] + ["Die"] * with_dies + ["L3Cache"] * with_caches
    memory_at = draw(st.sampled_from(places))
    twice = draw(st.booleans())  # a second memory over the same cores

    def furnish(obj, often=4):
        if obj.type == memory_at:
            obj.below.insert(0, hx.numa(draw(st.integers(0, 3)) + 0.5))
            if twice:
                obj.below.insert(1, hx.numa(16))
        if draw(st.integers(0, often)) == 0:
            cards = [
                hx.gpu(*draw(st.lists(st.sampled_from(BACKENDS), max_size=3)))
                for _ in range(draw(st.integers(1, 2)))
            ]
            obj.below.append(hx.bridge(*cards))
        return obj

    def inner(levels):
        if not levels:
            return hx.cores(draw(st.integers(1, 3)), draw(st.integers(1, 2)))
        return [furnish(levels[0](*inner(levels[1:]))) for _ in range(draw(st.integers(1, 3)))]

    levels = [hx.pkg] + [hx.die] * with_dies + [hx.l3] * with_caches
    return furnish(hx.machine(*inner(levels)), often=2)


class Expected:
    """The rules on a description: see flux.resource.hwloc.amend."""

    def __init__(self, machine):
        self.counter = 0
        self.gpus = []  # (set of cores of what they hang off, objects above)
        self.memories = []  # (set of cores, whole GiB)
        self.total = 0.0
        self.survey(machine, [])
        self.listed = set()
        self.leaf_memory = False
        self.topo = self.domain(machine)
        rest = set(range(len(self.gpus))) - self.listed
        assert not rest, "every card is somewhere"
        if not self.leaf_memory and int(self.total):
            self.topo["memory"] = int(self.total)

    def survey(self, obj, above):
        obj.cores = set()
        for below in obj.below:
            if below.type == "Core":
                below.cores = {self.counter}
                self.counter += 1
            elif below.type in ("Package", "Die", "L3Cache"):
                self.survey(below, [*above, obj])
            obj.cores |= getattr(below, "cores", set())
        for below in obj.below:
            if below.type == "NUMANode":
                self.memories.append((obj.cores, int(below.gib)))
                self.total += below.gib
        for below in obj.below:
            if below.type == "Bridge":
                for card in below.below:
                    known = [dict(device.infos).get("Backend") for device in card.below]
                    known = [name for name in known if name in BACKENDS[:4]]
                    for name in known:
                        if name == known[0]:
                            self.gpus.append((obj.cores, [*above, obj]))

    def level(self, obj):
        found = [below for below in obj.below if below.type in ("Package", "Die")]
        if found:
            return found, {"Package": "socket", "Die": "Die"}[found[0].type]
        mine = [memory for memory in self.memories if memory[0] <= obj.cores]
        return mine, "numa"

    def domain(self, obj):
        while True:
            entries, name = self.level(obj) if not isinstance(obj, tuple) else ([], "")
            if len(entries) != 1:
                break
            obj = entries[0]
        cores = obj[0] if isinstance(obj, tuple) else obj.cores
        mine = {
            number
            for number, (near, above) in enumerate(self.gpus)
            if near <= cores or any(one is obj for one in above)
        }
        if not entries:
            domain = {"cores": text(cores)}
            if isinstance(obj, tuple) and obj[1]:
                domain["memory"] = obj[1]
                self.leaf_memory = True
        else:
            before, self.listed = self.listed, set()
            domain = {name: [self.domain(entry) for entry in entries]}
            mine -= self.listed
            self.listed |= before
        if mine:
            domain["gpus"] = text(mine)
            self.listed |= mine
        return domain


def text(numbers):
    return idset_text(sum(1 << number for number in numbers))


@settings(max_examples=runs(25, 60), suppress_health_check=list(HealthCheck))
@given(machine=machines())
def test_random_machines(hwloc, machine):
    xml = hx.render(machine)
    expected = Expected(machine)
    assert topology_from_xml(xml) == (expected.topo, expected.counter, len(expected.gpus)), xml
