# SPDX-License-Identifier: LGPL-3.0-or-later
"""Histories that went wrong once in fault runs are replayed for ever: t/faults/cases."""

import json
from pathlib import Path

import faults
import pytest

CASES = Path(faults.HERE, "cases")


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda p: p.stem)
def test_case(path):
    case = json.loads(path.read_text())
    assert faults.run_history(case["history"], case["scheduler"], case["pool"]) is None
