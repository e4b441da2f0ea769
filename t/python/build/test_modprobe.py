# SPDX-License-Identifier: LGPL-3.0-or-later
"""flux.modprobe: entries, order of loading, rc files."""

import json

import pytest
import shared

from flux.modprobe import Catalog, Context, ModprobeError, Task, order_tasks, run_file
from flux_embedded.cmd import modprobe as command


def write(directory, text, name="modprobe.toml"):
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(directory)


ENTRIES = """
[[modules]]
name = "store"

[[modules]]
name = "fast"
provides = ["sched"]
requires = ["store"]
after = ["store"]
priority = 10

[[modules]]
name = "good"
provides = ["sched"]
requires = ["store"]
after = ["store"]
priority = 20
"""


class Handle:
    """Stands for a connection: remembers what is loaded and removed."""

    def __init__(self, loaded=(), fails=()):
        self.loaded = list(loaded)
        self.calls = []
        self.fails = fails

    def rpc(self, topic, payload):
        self.calls.append((topic, payload))
        if payload.get("path") in self.fails:
            raise FileExistsError(17, "File exists")
        return self

    def get(self):
        return {"mods": [{"name": name} for name in self.loaded]}

    def get_rank(self):
        return 0


def test_the_highest_priority_provides_a_service(tmp_path):
    catalog = Catalog([write(tmp_path, ENTRIES)])
    assert catalog.resolve("sched")["name"] == "good"


def test_an_alternative_beats_the_priority(tmp_path):
    catalog = Catalog([write(tmp_path, ENTRIES)], {"alternatives": {"sched": "fast"}})
    assert catalog.resolve("sched")["name"] == "fast"


def test_what_is_required_is_loaded_first(tmp_path):
    catalog = Catalog([write(tmp_path, ENTRIES)])
    assert [e["name"] for e in catalog.closure(["sched"])] == ["store", "good"]


def test_a_dropin_replaces_an_entry(tmp_path):
    write(
        tmp_path,
        '[[modules]]\nname = "good"\npriority = 1\nprovides = ["sched"]\n',
        "modprobe.d/site.toml",
    )
    assert Catalog([write(tmp_path, ENTRIES)]).resolve("sched")["name"] == "fast"


def test_unknown_module(tmp_path):
    with pytest.raises(ModprobeError, match="nosuch: no such module"):
        Catalog([write(tmp_path, ENTRIES)]).resolve("nosuch")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[[modules]]\nname = "a"\nprovide = ["x"]\n', "unknown key 'provide'"),
        ("[[modules]]\npriority = 3\n", "has no name"),
        ("[[modules]\n", "modprobe.toml"),
        ('modules = "a"\n', r"expected \[\[modules\]\]"),
    ],
)
def test_a_bad_file_is_named_with_its_fault(tmp_path, text, reason):
    with pytest.raises(ModprobeError, match=reason):
        Catalog([write(tmp_path, text)])


def test_a_circle_is_reported():
    tasks = [Task("a", None, after=["b"]), Task("b", None, after=["a"])]
    with pytest.raises(ModprobeError, match="a, b"):
        order_tasks(tasks)


def test_star_comes_before_or_after_everything():
    tasks = [
        Task("last", None, after=["*"]),
        Task("a", None),
        Task("b", None),
        Task("first", None, before=["*"]),
    ]
    assert [t.name for t in order_tasks(tasks)] == ["first", "a", "b", "last"]


RCFILE = """
from flux.modprobe import task

def setup(context):
    context.load_modules(["good", "store"])
    context.setopt("good", "queue-depth=8 log-level=debug")

@task("between", ranks="0", after=["store"], before=["good"])
def between(context):
    context.handle.calls.append("between")

@task("elsewhere", ranks="1")
def elsewhere(context):
    context.handle.calls.append("elsewhere")
"""


def test_rc_file_runs_its_tasks_among_the_modules(tmp_path):
    catalog = Catalog([write(tmp_path, ENTRIES)])
    handle = Handle()
    run_file(Context(handle, catalog), write(tmp_path, RCFILE, "rc.py") + "/rc.py")
    assert handle.calls == [
        ("module.load", {"path": "store", "args": []}),
        "between",
        ("module.load", {"path": "good", "args": ["queue-depth=8", "log-level=debug"]}),
    ]


def test_a_module_that_does_not_load_is_named(tmp_path):
    context = Context(Handle(fails=["good"]), Catalog([write(tmp_path, ENTRIES)]))
    context.load_modules(["store", "good"])
    with pytest.raises(ModprobeError, match="load good: File exists"):
        context.run()


def test_modules_are_removed_in_reverse_and_only_if_loaded(tmp_path):
    handle = Handle(loaded=["store", "good", "unknown"])
    context = Context(handle, Catalog([write(tmp_path, ENTRIES)]))
    context.remove_modules()
    context.run()
    assert [p["name"] for t, p in handle.calls if t == "module.remove"] == ["good", "store"]


def test_a_missing_rc_file(tmp_path):
    with pytest.raises(ModprobeError, match="nosuch.py: No such file or directory"):
        run_file(Context(Handle(), Catalog([])), str(tmp_path / "nosuch.py"))


def test_shown_entries_and_trees_are_those_of_a_real_host():
    recorded = [
        r
        for r in shared.load_jsonl("golden/cli-misc.jsonl")
        if r.get("cmd", "").startswith("flux modprobe")
    ]
    assert recorded
    catalog = Catalog()
    compared = 0
    for record in recorded:
        words = record["cmd"].split()
        if words[2] == "show":
            assert json.loads(record["stdout"]) == catalog.resolve(words[3])
        elif words[2] == "list-dependencies":
            assert record["stdout"].splitlines() == list(command.show_tree(catalog, words[3]))
        else:
            continue
        compared += 1
    assert compared >= 4
