# SPDX-License-Identifier: LGPL-3.0-or-later
"""The tables of states are complete, and drawn as they are."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from flux.scheduler.states import JOB, REQUEST, WINDOW

TABLES = pytest.mark.parametrize("table", [REQUEST, JOB, WINDOW], ids=lambda table: table.name)


@TABLES
def test_a_table_is_complete(table):
    states = set(table.moves)
    assert set(table.notes) == states and table.initial in states
    reached = {table.initial}
    for _ in states:
        reached |= {after for state in reached for after in table.moves[state].values()}
    assert reached == states, "each state can be reached, and none is missing"


@TABLES
def test_the_picture_shows_all_states_and_moves(table, monkeypatch):
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "doc" / "_ext"))
    from state_tables import moves_between, picture, table_text

    drawn = ElementTree.fromstring(picture(table))
    texts = [one.text for one in drawn.iter() if one.tag.endswith("text")]
    between = moves_between(table)
    assert sorted(texts) == sorted([*table.moves, *map(", ".join, between.values())])
    arrows = [one for one in drawn.iter() if "marker-end" in one.attrib]
    assert len(arrows) == len(between)
    text = "\n".join(table_text(table))
    for state, events in table.moves.items():
        assert f"**{state}**" in text and table.notes[state] in text
        for event, after in events.items():
            assert f"*{event}*: {after}" in text
