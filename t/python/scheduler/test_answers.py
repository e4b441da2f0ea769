# SPDX-License-Identifier: LGPL-3.0-or-later
"""Answers to users agree with later events, for each kind of site of ``t/bench/answers``."""

import itertools
import runpy
from pathlib import Path

import pytest
from shared import seeds

ANSWERS = runpy.run_path(str(Path(__file__).resolve().parents[2] / "bench/answers"))


# In the last one promises move by half a second.
@pytest.mark.parametrize(
    "kind, seed", [*itertools.product(ANSWERS["KINDS"], seeds(1, 2)), ("unlimited, parts", 728)]
)
def test_jobs_start_when_their_users_were_told(kind, seed):
    figures = dict.fromkeys(ANSWERS["COLUMNS"], 0)
    ANSWERS["measure"](kind, seed, figures)
    assert {name for name, count in figures.items() if count} <= {"as said", "exact"}
