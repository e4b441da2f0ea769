# SPDX-License-Identifier: LGPL-3.0-or-later
"""Module arguments: accepted ones, and the errors for others."""

import pytest
from peers import R, Rig

from flux.scheduler import Scheduler
from flux.scheduler.policies import Backfill, Fifo
from flux.scheduler.pools import _pool_class_from_uri, _pool_class_from_writer
from flux.scheduler.testing import FakeInstance

ERR = 3
UNKNOWN = "unknown argument {!r}: built-in options are queue-depth, log-level, pool-class, pool-OPTION, jobspec-bytes, jobspec-values"
#: The same from our own schedulers.
UNKNOWN_HERE = (
    UNKNOWN + "; this scheduler also has rule, reason-depth, estimate-depth, odds-depth, order"
)


def failure(*args, module="sched-fifo"):
    rig = Rig(R(2, 2))
    rig.load(module, *args, wait=False)
    rig.settle()
    assert isinstance(rig.task.failure, ValueError)
    assert not rig.task.running
    assert rig.logged(ERR) == [str(rig.task.failure)]
    return str(rig.task.failure)


NUMBER = "expected a number, 'head', 'unlimited' or 'all'"
JOBS = "expected a number of jobs, 0 for none"
DEPTH = "expected a positive integer or 'unlimited'"
LEVELS = "expected one of emerg, alert, crit, err, warning, notice, info, debug"


@pytest.mark.parametrize(
    "name, values, text",
    [
        ("queue-depth", ["bogus", "0", "-1", "", "1.5", "٣"], DEPTH),
        ("log-level", ["bogus"], LEVELS),
        ("reason-depth", ["x", "-1"], JOBS),
    ],
)
@pytest.mark.parametrize("module", ["sched-fifo", "sched-simple"])
def test_bad_values(name, values, text, module):
    for value in values:
        said = failure(f"{name}={value}", module=module)
        assert said == f"{name}={value!r} is invalid: {text}"


@pytest.mark.parametrize(
    "arg, text",
    [
        *[(arg, UNKNOWN_HERE.format(arg)) for arg in ("log_level=debug", "foo", "mode=foobar")],
        ("queue-depth", "argument 'queue-depth' has no value: expected queue-depth=VALUE"),
        ("order", "argument 'order' has no value: expected order=VALUE"),
        ("mode=limited=-1", "mode=limited= requires a positive integer, got '-1'"),
        ("mode=limited=0", "mode=limited= requires a positive integer, got '0'"),
    ],
)
@pytest.mark.parametrize("module", ["sched-fifo", "sched-simple"])
def test_bad_arguments(arg, text, module):
    assert failure(arg, module=module) == text


@pytest.mark.parametrize(
    "name, reason",
    [
        ("nosuchmodule", "no module nosuchmodule"),
        ("json", "the module json has no pool_class"),
        ("flux.resource.Rv1Pool:Nope", "the module flux.resource.Rv1Pool has no Nope"),
        ("../evil", "expected MODULE or MODULE:CLASS"),
        ("coolpool", "coolpool: ModuleNotFoundError: No module named 'no_such_thing'"),
    ],
)
def test_pool_classes_that_are_none(name, reason, tmp_path, monkeypatch):
    (tmp_path / "coolpool.py").write_text("import no_such_thing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    said = failure(f"pool-class={name}")
    assert said == f"pool-class='{name}': could not load pool class: {reason}"
    base = "pool_class must be a ResourcePool or ResourcePoolImplementation subclass"
    assert failure("pool-class=json:loads").startswith(f"{base}, got <function loads")


def test_a_pool_without_super_is_named(tmp_path, monkeypatch):
    (tmp_path / "coldpool.py").write_text(
        "from flux.resource import ResourcePool, Rv1Pool\n"
        "class Cold(Rv1Pool):\n"
        "    def __init__(self, R, **kwargs):\n        self.mine = 0\n"
        "class pool_class(ResourcePool):\n    _impl_map = {1: Cold}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    said = r"Cold.__init__\(\) does not call super\(\).__init__\(\)"
    with pytest.raises(RuntimeError, match=said):
        Rig(R(1, 1), "sched-fifo", "pool-class=coldpool")


@pytest.mark.parametrize(
    "name, values, text",
    [
        ("reservations", ["-1", "x", "", "1.5", "Unlimited"], NUMBER),
        ("promises", ["-1", "x", ""], NUMBER),
        ("promise", ["some"], NUMBER),
        ("guarantee", ["", "Kept", "1", "all"], "expected 'kept' or 'none'"),
        ("order", ["", "both", "queue=1"], "expected 'queue' or 'strict'"),
        ("odds-depth", ["-1", "x", "1.5", ""], JOBS),
        ("rank", ["slowest"], "expected fcfs, shortest, area"),
        ("rank", ["/nowhere/x.py:f"], "rank='/nowhere/x.py:f': No such file or directory"),
        ("candidates", ["x"], "or FILE:FUNCTION"),
        ("predict", ["users"], "expected limits, class, last2 or FILE:FUNCTION"),
        ("profile", ["best"], "expected 'short-waits'"),
        ("within", ["soon"], "expected a length of time"),
    ],
)
def test_bad_arguments_of_sched_backfill(name, values, text):
    for value in values:
        said = failure(f"{name}={value}", module="sched-backfill")
        assert said.startswith(f"{name}={value!r}") and text in said


def test_test_hello_nopartial_is_sched_simples():
    assert failure("test-hello-nopartial") == UNKNOWN_HERE.format("test-hello-nopartial")
    rig = Rig(R(1, 1), "sched-simple", "test-hello-nopartial")
    assert rig.manager.hello_request == {"partial-ok": False}


@pytest.mark.parametrize(
    "args, ready",
    [
        (["queue-depth=5"], {"mode": "limited", "limit": 5}),
        (["queue-depth=unlimited"], {"mode": "unlimited"}),
        (["mode=unlimited"], {"mode": "unlimited"}),
        (["mode=limited=3"], {"mode": "limited", "limit": 3}),
        (["queue-depth=5", "mode=limited=3"], {"mode": "limited", "limit": 3}),
        ([], {"mode": "limited", "limit": 8}),
        (["order=queue"], {"mode": "unlimited"}),  # a depth must not hide a queue
        (["order=queue", "queue-depth=3"], {"mode": "limited", "limit": 3}),
    ],
)
def test_queue_depth(args, ready):
    rig = Rig(R(1, 1), "sched-fifo", *args)
    assert rig.manager.ready_request == ready


# -- the check for unknown arguments, however classes are built ------------------------------------


class TakesFirst(Scheduler):
    """As in the guide: parse the policy's own arguments, pass on the others."""

    def __init__(self, h, *args):
        rest = []
        self.mine = None
        for arg in args:
            if arg.startswith("my-option="):
                self.mine = arg[10:]
            else:
                rest.append(arg)
        super().__init__(h, *rest)


class TakesAfter(Scheduler):
    def __init__(self, h, *args):
        super().__init__(h, *args)
        self.mine = [arg for arg in self._pending_args if arg == "mine"]
        self._pending_args = [arg for arg in self._pending_args if arg != "mine"]


class Deeper(TakesAfter):
    def __init__(self, h, *args):
        super().__init__(h, *args)
        if "deeper" in self._pending_args:
            self._pending_args.remove("deeper")


@pytest.mark.parametrize("level", ["debug", "DEBUG", "Debug"])
def test_log_level_in_any_case(level):
    rig = Rig(R(1, 1), "sched-fifo", "log-level=" + level)
    assert "log-level=debug" in rig.logged(6)[0]


@pytest.mark.parametrize(
    "cls, args",
    [
        (TakesFirst, ["my-option=3", "queue-depth=2"]),
        (TakesAfter, ["mine", "log-level=err"]),
        (Deeper, ["deeper", "mine"]),
    ],
)
def test_arguments_of_subclasses(cls, args):
    Rig(R(1, 1), cls, *args)
    with pytest.raises(ValueError) as caught:
        Rig(R(1, 1)).load(cls, *args, "typo=1")
    assert str(caught.value) == UNKNOWN.format("typo=1")


# -- pool URIs -------------------------------------------------------------------------------------


def test_an_unexpected_exception_of_the_start_is_logged_with_its_line():
    class Early(Fifo):
        def __init__(self, h, *args):
            super().__init__(h, *args)
            self.limits = {}["early"]

    class Late(Fifo):
        def _make_pool(self, R):
            self.limits = {}["late"]

    for policy, begin in ((Early, "Traceback"), (Late, "cannot start: Traceback")):
        instance = FakeInstance(check_errors=False)
        with pytest.raises(KeyError):
            instance.load(policy)
        (text,) = instance.errors
        assert text.startswith(begin) and "self.limits = {}[" in text
        assert text.endswith(f"KeyError: '{policy.__name__.lower()}'")


def test_pool_uris(tmp_path, monkeypatch):
    assert _pool_class_from_uri("site_pool") is None
    (tmp_path / "site_pool.py").write_text(
        "from flux.resource import ResourcePool\nclass SitePool(ResourcePool): pass\npool_class = SitePool\nother = 3\n"
    )
    (tmp_path / "broken_pool.py").write_text("1/0")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = _pool_class_from_uri("site-pool")
    assert found.__name__ == "SitePool"
    assert _pool_class_from_uri("site_pool:SitePool").__name__ == "SitePool"
    assert _pool_class_from_uri("site_pool:Other") is None
    assert _pool_class_from_uri("broken_pool") is None
    assert _pool_class_from_writer("site_pool:some-version") is found
    assert _pool_class_from_writer({"scheduling": {"writer": "site-pool"}}) is found
    assert _pool_class_from_writer({"version": 1}) is None
    for odd in ("", ".", "a..b", "a b", "a;b", "os.path:join()", "x" * 300, 7, None, "a:b:c"):
        assert _pool_class_from_uri(odd) is None
    assert _pool_class_from_uri("Rv1Pool").__name__ == "Rv1Pool"  # as the line `ready:` has it


@pytest.mark.parametrize("option", ["rank", "candidates", "predict"])
def test_a_file_that_others_can_write_is_not_run(tmp_path, option):
    """As a plugin's: write access to it grants the rights of the instance owner."""
    path = tmp_path / "site.py"
    path.write_text("def one(scheduler, job):\n    return 1.0\n")
    path.chmod(0o666)
    said = failure(f"{option}={path}:one", module="sched-backfill")
    assert "others can write it: chmod o-w" in said


POSITIVE = "expected a positive integer"


@pytest.mark.parametrize(
    "name, values, text",
    [
        ("queue_depth", ["x", -1], DEPTH),
        ("jobspec_bytes", [-1], POSITIVE),
        ("jobspec_values", [None], POSITIVE),
        ("reason_depth", [2.5], JOBS),
        ("estimate_depth", ["x"], JOBS),
        ("odds_depth", [True, "many"], JOBS),
        ("SCHED_DELAY_MAX", ["1", -1.0], "expected a number from 0 to 3600"),
        ("SCHED_EWMA_ALPHA", [1.5, float("nan")], "expected a number from 0 to 1"),
        ("predict", [3], "expected limits, class, last2 or FILE:FUNCTION"),
    ],
)
def test_bad_attributes_of_a_class(name, values, text):
    for value in values:
        with pytest.raises(ValueError) as raised:
            FakeInstance().load(type("Mine", (Backfill,), {name: value}))
        option, _, said = str(raised.value).partition("=")
        assert option == (name if name.isupper() else name.replace("_", "-"))
        assert said in (f"{value!r} is invalid: {text}", f"'{value}' is invalid: {text}")


def test_attributes_of_a_class_in_digits_are_numbers():
    attributes = dict.fromkeys(("queue_depth", "jobspec_values", "reason_depth"), "512")
    instance = FakeInstance()
    sched = instance.load(type("Mine", (Fifo,), attributes))
    assert sched.reason_depth == sched.jobspec_values == 512
    assert instance.job_manager.sched.limit == 512
