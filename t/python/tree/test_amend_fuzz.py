# SPDX-License-Identifier: LGPL-3.0-or-later
"""Random bytes: a result or a RuntimeError, and this process survives."""

import itertools
import os
import random
import re
import signal
from pathlib import Path

import pytest
import shared
from own_machines import MACHINES

from flux.resource.hwloc import xml
from flux.resource.hwloc.amend import topology_from_xml

VALUES = (
    "", "0", "-1", "0x0", "4294967295", "18446744073709551616", "0xf...f", "0xffffffff,0xffffffff",
    "Package", "PU", "Core", "NUMANode", "Group", "Machine", "Bridge", "PCIDev", "OSDev", "Misc",
    "Die", "L3Cache", "99999999", "x" * 300, "%s%n", "2.5", "&lt;", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
)  # fmt: skip


def documents():
    found = [xml for xml, *_ in MACHINES.values()]
    data = shared.data_dir()
    if data is not None:
        paths = [p for p in sorted((data / "hwloc").glob("*.xml")) if p.stat().st_size < 50000]
        found += [path.read_text(encoding="utf-8") for path in paths]
    return found


def attributes(text):
    return list(re.finditer(r'="([^"]*)"', text))


def change_byte(text, rnd):
    at = rnd.randrange(len(text))
    return text[:at] + chr(rnd.randrange(1, 300)) + text[at + 1 :]


def copy_lines(text, rnd):
    lines = text.split("\n")
    at, to = rnd.randrange(len(lines)), rnd.randrange(len(lines))
    lines[to:to] = lines[at : at + rnd.choice((1, 1, 3))]
    return "\n".join(lines)


def set_value(text, rnd):
    at = rnd.choice(attributes(text))
    return text[: at.start(1)] + rnd.choice(VALUES) + text[at.end(1) :]


def swap_elements(text, rnd):
    found = list(re.finditer("<object [^>]*>", text))
    one, two = sorted(rnd.sample(range(len(found)), 2))
    one, two = found[one], found[two]
    return (
        text[: one.start()] + two.group() + text[one.end() : two.start()] + one.group()
        + text[two.end() :]
    )  # fmt: skip


def cut(text, rnd):
    return text[: rnd.randrange(len(text))]


MUTATIONS = (change_byte, copy_lines, set_value, set_value, swap_elements, cut)


def mutated(rnd, texts):
    text = rnd.choice(texts)
    for _ in range(rnd.choice((1, 1, 2, 3, 8))):
        try:
            text = rnd.choice(MUTATIONS)(text, rnd)
        except (IndexError, ValueError):  # nothing of the kind left in it
            break
    return text


@pytest.mark.parametrize("seed", shared.seeds(2, 8))
def test_changed_documents(hwloc, seed):
    rnd = random.Random(seed)
    texts = documents()
    outcomes = set()
    for _ in range(60):
        try:
            topo, ncores, _ = topology_from_xml(mutated(rnd, texts))
        except RuntimeError as exc:
            assert "hwloc XML" in str(exc)
            outcomes.add("refused")
        else:
            assert isinstance(topo, dict) and ncores > 0
            outcomes.add("read")
    assert outcomes == {"refused", "read"}


ACCIDENTS = {
    "abort": lambda *args: os.abort(),
    "segfault": lambda *args: os.kill(os.getpid(), signal.SIGSEGV),
    "memory": lambda *args: [bytearray(1 << 26) for _ in itertools.count()],
    "exit": lambda *args: os._exit(0),
    "exception": lambda *args: {}["x"],
}


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_a_crash_of_libhwloc_is_an_error(hwloc, monkeypatch, accident):
    """Some documents make libhwloc crash, other ones in each release: the accident is played."""
    monkeypatch.setattr(xml, "_read", ACCIDENTS[accident])
    monkeypatch.setattr(xml, "MAX_MEMORY_BYTES", 1 << 27)
    with pytest.raises(RuntimeError, match="libhwloc gave up on it"):
        topology_from_xml(documents()[0])


def children():
    """The child processes of all threads of this process."""
    tasks = Path("/proc/self/task")
    return {pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()}


def test_no_child_is_left_behind(hwloc):
    try:
        before = children()
    except FileNotFoundError:
        pytest.skip("this kernel does not list a process's children")
    topology_from_xml(documents()[0])
    assert children() <= before
