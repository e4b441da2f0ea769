# SPDX-License-Identifier: LGPL-3.0-or-later
"""What users are told is what then happens, for each kind of site of ``t/bench/answers``."""

import importlib.machinery
import importlib.util
import itertools
from pathlib import Path

import pytest
from shared import seeds

PATH = Path(__file__).resolve().parents[2] / "bench" / "answers"
_loader = importlib.machinery.SourceFileLoader("answers", str(PATH))
answers = importlib.util.module_from_spec(importlib.util.spec_from_loader("answers", _loader))
_loader.exec_module(answers)


# In the last one promises move by half a second.
@pytest.mark.parametrize(
    "kind, seed", [*itertools.product(answers.KINDS, seeds(1, 2)), ("unlimited, parts", 728)]
)
def test_jobs_start_when_their_users_were_told(kind, seed):
    figures = dict.fromkeys(answers.COLUMNS, 0)
    answers.measure(kind, seed, figures)
    assert {name for name, count in figures.items() if count} <= {"as said", "exact"}
