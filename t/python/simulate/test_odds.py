# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux simulate --odds``: how right schedulers are about likely starts."""

import json
from types import SimpleNamespace

import pytest
from command_runner import first_scheduler, flux, rows

from flux.simulate.odds import comparison
from flux.simulate.run import Settings
from flux.simulate.workload.record import OptionError

CALL = ("--jobs=160", "--odds=6", "sample", "-q")


def without_cost(found):
    return [{**one["odds"], "seconds": 0} for one in found]


def test_it_is_the_same_each_time_and_changes_no_start(tmp_path):
    found = json.loads(flux(*CALL, "-o", tmp_path / "asked", "--json").stdout)
    (odds,) = without_cost(found)
    assert odds["waited"] // 6 == odds["asked"] >= odds["known"] > 5
    assert 0 <= odds["played"] <= 1 and odds["likely_median"] < odds["limits_median"]
    assert without_cost(json.loads(flux(*CALL, "--json").stdout)) == [odds]
    flux("--jobs=160", "sample", "-q", "-o", tmp_path / "plain")
    asked, plain = (rows(tmp_path / name / "sched-backfill") for name in ("asked", "plain"))
    assert [row["starting_time"] for row in asked] == [row["starting_time"] for row in plain]


def test_the_table_says_which_scheduler_has_no_odds(tmp_path):
    (tmp_path / "first.py").write_text(first_scheduler())
    policies = "--scheduler ./first.py --scheduler 'sched-fifo odds-depth=0'"
    done = flux(f"--jobs=40 --odds=5 sample -q {policies}", cwd=tmp_path)
    table = done.stdout[done.stdout.index("\nodds ") :].splitlines()[1:]
    assert table[0].split()[:3] == ["odds", "jobs", "started"]
    assert "the scheduler answers no questions" in table[1]
    assert "the scheduler was told to find none (odds-depth=0)" in table[2]


def said(likely, p90, played, limits):
    odds = {"t_likely": likely, "t_p90": played, "t_limits": limits, "misses": 0}
    return {"t_likely": likely, "t_p90": p90, "odds": odds}


def test_its_figures_by_hand():
    # The fourth is behind a job without a limit, the fifth has not started.
    known = [(n, said(100, 200, 150, None if n == 3 else 400)) for n in range(5)]
    outcome = SimpleNamespace(epoch=10.0, start=[110.0, 190.0, 490.0, 0.0, float("nan")])
    figures = comparison(known, outcome)
    expected = {"known": 3, "played": 1 / 3, "told": 2 / 3, "limits": 2 / 3}
    expected.update(likely_median=100, likely_mean=(20 + 100 + 400) / 3)
    expected.update(limits_median=200, limits_mean=(280 + 200 + 100) / 3)
    assert {key: figures[key] for key in expected} == pytest.approx(expected)


def test_a_whole_instance_is_not_asked():
    with pytest.raises(OptionError, match="odds needs the lean engine"):
        Settings(engine="instance", odds=5)
