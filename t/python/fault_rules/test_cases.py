# SPDX-License-Identifier: LGPL-3.0-or-later
"""Histories that went wrong once in fault runs are replayed for ever: t/faults/cases."""

import json
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).resolve().parents[2] / "faults"
if str(FAULTS) not in sys.path:
    sys.path.insert(0, str(FAULTS))

import faults  # noqa: E402


@pytest.mark.parametrize("path", sorted((FAULTS / "cases").glob("*.json")), ids=lambda p: p.stem)
def test_case(path):
    case = json.loads(path.read_text())
    assert faults.run_history(case["history"], case["scheduler"], case["pool"]) is None
