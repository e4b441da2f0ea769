# SPDX-License-Identifier: LGPL-3.0-or-later
"""The tables of states are complete."""

import pytest

from flux.scheduler.states import JOB, REQUEST

TABLES = pytest.mark.parametrize("table", [REQUEST, JOB], ids=lambda table: table.name)


@TABLES
def test_a_table_is_complete(table):
    states = set(table.moves)
    assert set(table.notes) == states and table.initial in states
    reached = {table.initial}
    for _ in states:
        reached |= {after for state in reached for after in table.moves[state].values()}
    assert reached == states, "each state can be reached, and none is missing"
