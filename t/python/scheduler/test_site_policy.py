# SPDX-License-Identifier: LGPL-3.0-or-later
"""Common to the features of site policy: the reader of their tables, names of queues, and a rule that
comes into force with its table."""

from functools import partial

import pytest
from each_policy import TABLE, under
from peers import R, Rig, jobspec

POLICIES = under("fifo", "fifo-by-queue", "simple", "easy", "promise-all")


# -- the reader ------------------------------------------------------------------------------------


ONE_JOB = {"per": "user", "max": {"jobs": 1}}


@pytest.fixture
def loaded():
    return Rig(R(2, 4), "sched-fifo")


def checked(rig, **tables):
    """Return the answer of `flux sched check-config` about these tables."""
    return rig.answer("check-config", config=tables)


@pytest.mark.parametrize(
    "table, hint",
    [
        ("limit", "is not a known table: is [limits] meant?"),
        ("sched-limit", "is not a known table: is [limits] meant?"),
        ("limits", None),
        ("sched-limits", None),
        ("sched-backfill", "is not read: arguments are sched-backfill.args in [modules]"),
        ("sched-fluxion-qmanager", None),
        ("policy", None),
    ],
)
def test_a_misspelled_table_is_doubted(loaded, table, hint):
    expected = [] if hint is None else [f"configuration: [{table}] {hint}"]
    assert checked(loaded, **{table: {"one": {}}})["doubts"] == expected


@pytest.mark.parametrize(
    "tables, doubts",
    [
        *[
            ({"queues": {"x": {"policy": {"scheduler": {key: "user"}}}}}, doubts)
            for key, doubts in (
                ("sharing", []),
                ("sharng", ["queues.x.policy.scheduler.sharng is not a known key: is 'sharing' meant?"]),
                ("limits", ["queues.x.policy.scheduler.limits is not a known key"]),
            )
        ],
        (
            {"limits": {"a": {**ONE_JOB, "queues": ["debgu", "batch"]}, "b": {**ONE_JOB, "queues": ["x"]}},
             "queues": {"batch": {}, "debug": {}}},
            ["[limits.a] there is no queue 'debgu': is 'debug' meant?", "[limits.b] there is no queue 'x'"],
        ),
        ({"amounts": {"disk": {}}}, ["[amounts.disk] no node has any"]),
        (
            {"amounts": {"memory": {"each": "4G", "default": "5G"}}},
            ["[amounts.memory] default='5G': no node has that much"],
        ),
        (
            {"amounts": {"disk": {"each": 1, "hosts": {"n[3-4]": 2}, "properties": {"big": 3}}}},
            ["[amounts.disk] hosts='n[3-4]': n4 not in this instance", "[amounts.disk] properties='big': no node has it"],
        ),
        *[
            ({"topology": {"rack": {"groups": {"a": "n0", "b": hosts}}}}, [f"[topology.rack] groups.b={hosts!r}: {unknown} not in this instance"])
            for hosts, unknown in (("n[2-99999999999]", "n[2-99999999999]"), ("n[2-7],m3", "n[4-7],m3"))
        ],
        ({"sharing": {"a": {"mode": "user", "properties": ["big"]}}}, ["[sharing.a] properties='big': no node has it"]),
        (
            {"topology": {"rack": {"property-prefix": "rack-"}}},
            ["[topology.rack] property-prefix='rack-': no node has such a property"],
        ),
        (
            {"preemption": {name: {"queues": ["x"], "attribute": True} for name in "ba"}},
            ["[preemption.b] queue 'x': class a counts", "[preemption.b] attribute=true: class a counts"],
        ),
        (
            {"preemption": {"a": {"queues": ["x"], "signal": "USR1"}}},
            ["[preemption.a] signal: it is sent with a warning, and grace=0 gives none"],
        ),
    ],
)  # fmt: skip
def test_entries_without_effect_are_doubted(tables, doubts):
    rig = Rig(R(4, 4), "sched-backfill")
    config = {"queues": {"x": {}}, **tables}
    answer = rig.answer("check-config", config=config)
    assert answer["doubts"] == [f"configuration: {text}" for text in doubts]
    assert not answer["faults"]
    rig.reconfigure(config)
    assert [text for text in rig.logged(4) if "takes effect" not in text] == answer["doubts"]


def test_the_longer_name_counts_where_both_are(loaded):
    limit = {"per": "user", "max": {"jobs": 1}}
    for config, names in (
        ({"limits": {"ours": limit}}, ["ours"]),
        ({"limits": 7, "sched-limits": {"mine": limit}}, ["mine"]),
    ):
        loaded.reconfigure(config)
        assert checked(loaded)["changes"]["limits"]["gone"] == names and not loaded.logged(3)
    doubts = checked(loaded, limits={"a": limit}, **{"sched-limits": {"b": limit}})["doubts"]
    assert doubts == ["configuration: [limits] is not read beside [sched-limits]"]
    loaded.reconfigure({"sched-limits": 7})
    assert checked(loaded)["changes"]["limits"]["gone"] == ["mine"]
    assert loaded.logged(3) == ["configuration: sched-limits=7: expected a table"]


@pytest.mark.parametrize(
    "key, value, text",
    [
        ("a b", 1, "[amounts.a b] amounts: 'a b' is not a name of letters, digits, - and _"),
        ("memory", "x", "[amounts.memory] each='x': expected an amount such as 512M or 4G"),
        ("memory", {"per": 1}, "[amounts.memory] per: unknown key"),
    ],
)
def test_a_wrong_amount_is_named_once_and_the_others_are_counted(key, value, text):
    rig = Rig(R(4, 4), "sched-fifo", config={"amounts": {key: value, "fpga": 2}})
    assert rig.logged(3) == [f"configuration: {text}"]
    assert [one["amount"] for one in rig.sched.resources.amounts_in_use()] == ["fpga"]


def test_a_change_of_amounts_is_logged_while_they_differ_from_those_counted():
    before = {"amounts": {"fpga": 2}, "queues": {"a": {}}}
    rig = Rig(R(4, 4), "sched-fifo", config=before)
    rig.reconfigure({**before, "amounts": {"fpga": 3}})
    (line,) = rig.logged(4)
    assert line.startswith("configuration: [amounts] has changed")
    rig.reconfigure(before)
    rig.reconfigure({**before, "queues": {"a": {}, "b": {"parent": "a"}}})
    assert rig.logged(4) == [line]


def test_a_configuration_is_checked_before_it_is_loaded():
    limit = {"per": "user", "max": {"jobs": 2}}
    tables = {"limits": {"a": limit, "b": limit}, "license": {"matlab": 3}}
    rig = Rig(R(4, 4), "sched-fifo", config=tables)
    assert "configuration: [license] is not a known table: is [licenses] meant?" in rig.logged(4)
    config = {
        "limits": {"b": {"per": "user", "max": {"jobs": 3}}, "c": {"per": "uesr"}},
        "licenses": {"matlab": 4},
    }
    # An invalid entry stays as it is.
    invalid = rig.answer("check-config", config={"limits": {"a": {"per": "uesr"}, "b": limit}})
    assert len(invalid["faults"]) == 1 and invalid["changes"] == {}
    answer = rig.answer("check-config", config=config)
    (fault,) = answer["faults"]
    assert fault.startswith("configuration: [limits.c] per='uesr': expected 'user' or ")
    changes = {
        "limits": {"new": [], "changed": ["b"], "gone": ["a"]},
        "licenses": {"new": ["matlab"], "changed": [], "gone": []},
    }
    assert answer == {"faults": [fault], "doubts": [], "changes": changes, "over": []}
    # Nothing has changed.
    assert rig.answer("check-config", config=config) == answer
    errnum, text = rig.ask("sched.check-config", {"config": 5})
    assert errnum and text == "config: expected an object"


def would_be_over(rig, **tables):
    """Return the jobs and users over the maxima of a configuration with these tables."""
    rig.send("sched.check-config", {"config": tables})
    rig.wait(1)  # the job manager is asked about the running jobs
    topic, errnum, answer = rig.received[-1]
    assert (topic, errnum) == ("sched.check-config", 0)
    return [(one["entry"], one["state"], one["jobs"], one["text"]) for one in answer["over"]]


def test_jobs_are_counted_by_the_parents_of_queues_in_the_file_that_is_checked():
    kept = {"batch": {"per": "queue", "queues": ["batch"], "max": {"jobs": 2}}}
    rig = Rig(R(4, 4), "sched-backfill", config={"queues": {"batch": {}}, "limits": kept})
    for jobid, queue in ((1, "batch"), (2, "quick"), (3, "quick")):
        spec = jobspec(1, nodes=1, exclusive=True, duration=100, queue=queue)
        rig.info.jobspecs[jobid] = spec
        rig.alloc(jobid, spec)
    assert rig.started() == [1, 2, 3]

    parents = {"batch": {}, "quick": {"parent": "batch"}}
    less = {"batch": {**kept["batch"], "max": {"jobs": 1}}}
    over = ("batch", "running", ["ƒ2", "ƒ3", "ƒ4"])
    text = "limit batch: queue batch has 3 of {} jobs in batch"
    assert would_be_over(rig, limits=less) == []
    assert would_be_over(rig, limits=less, queues=parents) == [(*over, text.format(1))]
    # The limit stays, and counts other jobs.
    assert would_be_over(rig, limits=kept, queues=parents) == [(*over, text.format(2))]
    rig.reconfigure({"limits": less, "queues": parents})
    assert would_be_over(rig, limits=kept) == []
    assert [one["used"]["jobs"] for one in rig.answer("limits")["limits"]] == [3]
    rig.unload()  # they are over the new limit


def test_jobs_that_would_be_over_new_licences_or_budgets_are_named():
    budget = {"per": "user", "period": "day", "zone": "UTC", "max": {"node-hours": 8}}
    rig = Rig(R(4, 4))
    rig.wait((7200 - rig.now % 86400) % 86400)  # no day ends
    rig.instance.config = {"licenses": {"matlab": 8}, "budgets": {"one": budget}}
    rig.load("sched-backfill")
    for jobid, userid, count in ((1, 700, 3), (2, 701, 2), (3, 700, 1), (4, 701, 7)):
        keys = {"duration": 3600, "licenses": {"matlab": count}}
        spec = jobspec(2, nodes=2, exclusive=True, **keys)
        rig.info.jobspecs[jobid] = spec
        rig.alloc(jobid, spec, userid=userid)
    rig.wait(1800)

    over = partial(would_be_over, rig)
    larger = {**budget, "max": {"node-hours": 9}}
    assert over(licenses={"matlab": 12}, budgets={"one": larger}) == []
    assert over(licenses={"matlab": 4, "ansys": 1}) == [
        ("matlab", "running", ["ƒ2", "ƒ3"], "licenses: matlab 5 of 4 in use"),
        ("matlab", "pending", ["ƒ4"], "licenses: matlab 5 of 4 in use; needs 1"),
        ("matlab", "pending", ["ƒ5"], "licenses: needs 7 of matlab, there are 4"),
    ]
    unknown = "licenses: there is no licence matlab (known: ansys)"
    assert over(licenses={"ansys": 1})[0][2:] == (["ƒ4"], unknown)
    # The past use of a budget counts; a new budget begins with the use from now on.
    for name, most, taken in (("one", 3, "2.0"), ("two", 2, "1.0")):
        text = f"has taken {taken} of {most} node-hours of this day; needs 2.0"
        assert over(budgets={name: {**budget, "max": {"node-hours": most}}}) == [
            (name, "pending", [job], f"budget {name}: {user} {text}")
            for job, user in (("ƒ4", 700), ("ƒ5", 701))
        ]
    of_all = {**budget, "per": "instance", "max": {"node-hours": 1.5}}
    text = "budget one: 2.0 are taken of 1.5 node-hours of this day"
    assert over(budgets={"one": of_all})[0] == ("one", "running", ["ƒ2", "ƒ3"], text)
    # Nothing has changed.
    assert rig.answer("limits")["licenses"][0]["used"] == 5
    rig.free(1)
    assert rig.started() == [1, 2, 3]
    assert not rig.logged(3)


def test_a_long_value_is_not_logged_whole():
    rig = Rig(R(2, 4), "sched-fifo")
    rig.reconfigure({"limits": {"one": {"per": "x" * 100000}}})
    (line,) = [text for text in rig.logged() if "[limits.one]" in text]
    assert len(line) < 5000 and "[limits.one] per='xxx" in line and "expected" in line


def load(policy, args, config=None):
    return Rig(R(4, 4), policy, *args, config=config)


# -- rules of a site's own -------------------------------------------------------------------------

CURFEW = """
from flux.scheduler.admission import AdmissionRule, Deferral
from flux.scheduler.site_policy.table_rule import TableRule

class Curfew(AdmissionRule):
    def __init__(self, host):
        super().__init__(host)
        self.running = 0

    def check(self, job):
        return Deferral(f"{self.name}: it is late", key="late") if self.running >= 1 else None

    def start(self, job, alloc):
        self.running += 1

    def hello(self, job):
        self.running += 1

    def free(self, jobid, R, final):
        self.running -= final
        self.host.readmit(self, "late")

class Beds(TableRule):
    name, table, lists = "beds", "beds", "beds"

    def parse(self, key, value):
        if type(value) is not int:
            raise ValueError(f"{value!r}: expected a number")
        return value

    def configure(self, entries):
        self.most, self.running = sum(entries.values()), 0

    check, start, hello, free = (
        vars(Curfew)[name] for name in ("check", "start", "hello", "free")
    )

    def report(self, caller):
        yield {"bed": "all", "used": self.running}

class Width(TableRule):
    table = "width"

    def check(self, job):
        return Deferral(f"more than {self.entries['all']}", key="w") if job.size > self.entries["all"] else None

class Projects(TableRule):
    table = "projects"

    def configure(self, entries):
        self.found = []

    def hello(self, job):
        self.found.append(job.attributes.get("project"))

    def stats(self):
        return {"found": self.found}

class Forgetful(TableRule):
    table, lists = "forgetful", "forgetful"

    def parse(self, key, value):
        if key == "one":
            return value

    def report(self, caller):
        yield from self.entries

class Broken(AdmissionRule):
    def __init__(self, host):
        raise RuntimeError("out of order")

def function():
    pass
"""


@pytest.fixture
def curfew(tmp_path):
    path = tmp_path / "site_rules.py"
    path.write_text(CURFEW)
    return path


def waits(rig, jobid):
    """The reason why a job waits, and the rule."""
    job = rig.explain(jobid)
    return job["reason"], [one["rule"] for one in job["rules"]]


@POLICIES
def test_a_rule_of_a_sites_own_comes_and_goes_with_the_configuration(policy, args, curfew):
    rig = load(policy, args, {"rules": {"curfew": f"{curfew}:Curfew"}})
    rig.alloc((1, 2, 3), jobspec(1, duration=100))
    assert rig.started() == [1]
    assert waits(rig, 2) == ("curfew: it is late", ["curfew"])
    stats = rig.answer("stats")
    assert {"name": "curfew", "source": f"{curfew}:Curfew"} in stats["rules"]
    assert {"name": "reservation", "source": None} in stats["rules"]
    rig.reconfigure({"queues": {"a": {"parent": "b"}, "b": {}}})
    assert sorted(rig.started()) == [1, 2, 3]
    # It counts the present jobs once, also if other rules are loaded anew.
    rules = {"curfew": f"{curfew}:Curfew"}
    rig.reconfigure({"rules": rules})
    rig.reconfigure({"rules": rules, "queues": {"a": {"parent": "b"}, "b": {}}})
    rig.arrive(4, jobspec(1, duration=100))
    for jobid in (1, 2):
        rig.free(jobid)
        assert sorted(rig.started()) == [1, 2, 3]
    rig.free(3)
    assert sorted(rig.started()) == [1, 2, 3, 4]
    rig.check()
    assert not rig.logged(3)


def test_one_may_be_added_while_a_configuration_is_checked(curfew):
    rig = load(*TABLE["fifo"])
    rig.arrive(1)
    limits = {"limits": {"a": {"per": "bank", "max": {"nodes": 1}}}}
    rig.send("sched.check-config", {"config": limits})
    rig.reconfigure({"rules": {"beds": f"{curfew}:Beds"}})
    rig.wait(1)
    (answer,) = [told for topic, errnum, told in rig.received if "check-config" in topic]
    assert answer["changes"]["limits"]["new"] == ["a"] and not rig.logged(3)


@POLICIES
def test_one_with_a_table_is_switched_on_by_it_and_listed(policy, args, curfew):
    rules = {"beds": f"{curfew}:Beds"}
    rig = load(policy, args, {"rules": rules})
    rig.alloc(1, jobspec(1, duration=100))
    assert rig.started() == [1]
    rig.reconfigure({"rules": rules, "beds": {"all": 1}})
    rig.alloc(2, jobspec(1, duration=100))
    assert waits(rig, 2) == ("beds: it is late", ["beds"])
    assert rig.answer("limits")["beds"] == [{"bed": "all", "used": 1}]
    config = {"rules": rules, "beds": {"all": "x"}}
    faults = rig.answer("check-config", config=config)["faults"]
    assert faults == ["configuration: [beds.all] 'x': expected a number"]
    rig.client.become(500)
    assert "beds" not in rig.answer("limits"), "a guest is told what the table names"
    rig.client = type(rig.client)()
    rig.reconfigure({})
    assert rig.started() == [1, 2]
    assert not rig.logged(3)


def test_one_with_a_table_needs_no_more_than_its_name(curfew):
    rules = {"width": f"{curfew}:Width"}
    rig = load(*TABLE["fifo"], {"rules": rules, "width": {"all": 2}})
    rig.alloc({1: jobspec(3, duration=100), 2: jobspec(2, duration=100)})
    assert rig.started() == [2] and waits(rig, 1) == ("more than 2", ["width"])
    rig.reconfigure({"rules": rules})
    assert rig.started() == [2, 1]
    assert not rig.logged(3)


def test_wrong_answers_of_a_rule_with_a_table_are_told(curfew):
    rules = {"rules": {"forgetful": f"{curfew}:Forgetful"}}
    rig = load(*TABLE["fifo"], {**rules, "forgetful": {"one": 1, "two": 2}})
    assert rig.answer("limits")["forgetful"] == []
    told = "\n".join(rig.logged(3))
    entry = "[forgetful.two] admission rule forgetful: parse() returned None: expected the entry"
    assert f"configuration: {entry}" in told
    assert "report() returned ['one']: expected dicts" in told


def test_an_argument_adds_one_as_well(curfew):
    rig = Rig(R(4, 4), "sched-fifo", f"rule={curfew}:Curfew")
    rig.alloc((1, 2), jobspec(1, duration=100))
    assert waits(rig, 2) == ("Curfew: it is late", ["Curfew"])
    rig.reconfigure({})
    assert rig.started() == [1], "no table has it, and none takes it away"


def test_arguments_may_name_classes_of_one_name_in_two_files(tmp_path):
    args = []
    for name in ("first", "second"):
        path = tmp_path / f"{name}.py"
        path.write_text(
            "from flux.scheduler.admission import AdmissionRule\n"
            f"class Mine(AdmissionRule):\n    def stats(self): return {{'{name}': [1]}}\n"
        )
        args.append(f"rule={path}:Mine")
    stats = Rig(R(1, 1), "sched-fifo", *args).answer("stats")
    assert stats["first"] == stats["second"] == [1]


FAULTS = [
    ("x", "'x': expected '/PATH/FILE.py:CLASS'"),
    (7, "7: expected '/PATH/FILE.py:CLASS'"),
    ("/nowhere/x.py:C", "curfew='/nowhere/x.py:C': No such file or directory"),
    ("{path}:Missing", "no class Missing in {path}"),
    ("{path}:function", "it is not a class derived from AdmissionRule"),
    ("{path}:Broken", "RuntimeError: out of order (site_rules.py:"),
    ("{path}:TableRule", "it does not say which table is its own"),
    # Another table, and what it lists.
    (("limits", None), "the table [limits] is read by another rule"),
    (("double", "licenses"), "lists='licenses' is another rule's"),
    ((["listed"], None), "table=['listed']: expected a name without dots"),
    (("site.beds", None), "table='site.beds': expected a name without dots"),
    (("other", True), "lists=True: expected a name without dots"),
]


@pytest.mark.parametrize("entry, said", FAULTS, ids=[str(one[0])[-20:] for one in FAULTS])
def test_a_rule_that_cannot_be_loaded_is_one_line(entry, said, curfew):
    if isinstance(entry, tuple):
        names = "table, lists = {!r}, {!r}".format(*entry)
        curfew.write_text(f"{CURFEW}\nclass Wrong(Beds):\n    {names}\n")
        entry = "{path}:Wrong"
    if isinstance(entry, str):
        entry = entry.format(path=curfew)
    rig = load(*TABLE["fifo"], {"rules": {"curfew": entry, "beds": f"{curfew}:Beds"}})
    (line,) = rig.logged(3)
    assert line.startswith("configuration: [rules.curfew] ")
    assert said.format(path=curfew) in line
    assert [rule.name for rule in rig.sched._site_policy.rules][-1] == "beds"
    rig.alloc(1, jobspec(1, duration=100))
    assert rig.started() == [1]


@pytest.mark.parametrize(
    "text, said",
    [
        ("import sys\nsys.exit(3)\nMine = 1", "SystemExit: 3 (mine.py:2)"),
        ("\nMine = {}['k']", "KeyError: 'k' (mine.py:2)"),
        ("def (", "SyntaxError: invalid syntax (mine.py, line 1)"),
    ],
)
def test_a_file_that_cannot_be_run_is_one_line(text, said, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(text)
    rig = load(*TABLE["fifo"], {})
    rig.reconfigure({"rules": {"mine": f"{path}:Mine"}})
    (line,) = rig.logged(3)
    assert line.startswith("configuration: [rules.mine] ") and line.endswith(said)


def test_a_file_may_have_dataclasses(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from flux.scheduler.admission import AdmissionRule\n"
        "@dataclass\nclass Use:\n    jobs: int = 0\n"
        "class Mine(AdmissionRule):\n    pass\n"
    )
    rig = load(*TABLE["fifo"], {"rules": {"mine": f"{path}:Mine"}})
    assert not rig.logged(3)


def test_a_file_that_others_can_write_is_not_run(curfew):
    curfew.chmod(0o646)
    rig = load(*TABLE["fifo"], {"rules": {"curfew": f"{curfew}:Curfew"}})
    (line,) = rig.logged(3)
    assert "others can write it: chmod o-w" in line
    with pytest.raises(ValueError, match="others can write it"):
        Rig(R(4, 4)).load("sched-fifo", f"rule={curfew}:Curfew")


def test_looking_at_a_configuration_runs_no_file(curfew, tmp_path):
    curfew.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{CURFEW}")
    rig = load(*TABLE["fifo"])
    config = {"rules": {"curfew": f"{curfew}:Curfew"}, "rule": {}}
    answer = rig.answer("check-config", config=config)
    assert answer["doubts"] == ["configuration: [rule] is not a known table: is [rules] meant?"]
    assert answer["changes"] == {"rules": {"new": ["curfew"], "changed": [], "gone": []}}
    assert answer["faults"] == answer["over"] == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("method", ["needs", "report", "parse", "configure", "ready"])
def test_one_that_raises_keeps_no_other_table_from_its_force(method, curfew):
    curfew.write_text(
        f"{CURFEW}\nclass Wrong(Beds):\n    table, lists = 'wrong', 'wrong'\n"
        f"    def {method}(self, *args):\n        raise RuntimeError('a bug in {method}')\n"
    )
    rules = {"wrong": f"{curfew}:Wrong"}
    rig = load(*TABLE["fifo"], {"rules": rules})
    rig.alloc((1, 2), jobspec(1, duration=100))
    limit = {"per": "instance", "max": {"jobs": 2}}
    rig.reconfigure({"rules": rules, "wrong": {"all": 1}, "limits": {"all": limit}})
    rig.alloc(3, jobspec(1, duration=100))
    assert rig.started() == [1, 2]
    answer = rig.answer("limits")
    assert answer["limits"][0]["used"]["jobs"] == 2
    (line,) = rig.logged(3)
    assert f"a bug in {method}" in line


@pytest.mark.parametrize(
    "tables, says",
    [
        ({"limits": {"one": {"per": "user", "max": {"jobs": 2}}}}, {}),
        ({"licenses": {"matlab": 2}}, {"licenses": {"matlab": 1}}),
        ({"budgets": {"one": {"per": "user", "period": "day", "max": {"core-hours": 16}}}}, {}),
    ],
    ids=["limit", "licence", "budget"],
)
@POLICIES
def test_the_place_of_a_job_that_is_withdrawn_goes_to_the_next_that_waits_for_the_same(
    policy, args, tables, says
):
    rig = Rig(R(4, 4), policy, *args, config=tables)
    for jobid, count in ((1, 1), (2, 1), (4, 2), (5, 2)):
        keys = {**says, "duration": 7200 if jobid < 3 else 3600}
        rig.alloc(jobid, jobspec(count, nodes=count, exclusive=True, **keys), userid=7)
        if jobid == 2:
            rig.alloc(3, jobspec(2, nodes=2, exclusive=True, duration=7200), userid=8)
    assert rig.started() == [1, 2, 3]
    rig.free(1, wait=0)  # 4 may start, and does not fit
    rig.cancel(4)
    rig.free(3)
    assert rig.started() == [1, 2, 3, 5]


@POLICIES
@pytest.mark.parametrize("again", [False, True])
def test_jobs_come_and_go_while_a_table_comes_into_force(policy, args, again):
    """Among many pending jobs this takes some turns, in which no job starts."""
    node = partial(jobspec, 1, nodes=1, exclusive=True, duration=1000)
    rig = Rig(R(8, 4), policy, "queue-depth=unlimited", *args)
    rig.alloc(range(1, 9), node(), userid=7)
    rig.arrive(range(100, 400), node(bank="red"), userid=7)
    limits = [{"limits": {"one": {"per": "user", "max": {"jobs": most}}}} for most in (4, 7)]
    for config in reversed(limits) if again else limits[:1]:
        rig.send(f"{rig.sched.name}.config-reload", config)
        rig.turn()
    rig.free(1)
    rig.cancel(101)
    rig.cancel(399)
    rig.alloc(500, node(), userid=8)
    rig.prioritize((398, 20))
    for _ in range(3):
        rig.turn()
    assert rig.started(settle=False) == list(range(1, 9))
    assert rig.started()[8:] == [500]
    for jobid in range(2, 5):
        rig.free(jobid)
    assert rig.started()[9:] == []
    rig.free(5)
    assert rig.started()[9:] == [398]
    (use,) = [one for one in rig.answer("limits")["limits"] if one["used"]["jobs"] > 1]
    assert (use["used"]["jobs"], use["waiting"]) == (4, 297)
    rig.reconfigure({})
    assert rig.started()[10:] == [100, 102, 103]
    rig.check()
