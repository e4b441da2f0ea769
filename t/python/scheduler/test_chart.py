# SPDX-License-Identifier: LGPL-3.0-or-later
"""The chart of a plan, as text and as a picture."""

import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from flux.scheduler.command.plan_chart import Chart

NOW = 1795600000.0  # 2026-11-25T09:46:40Z
HOUR = 3600.0


def plan(hours=8, ranks="0-7", down="", **lists):
    return {"now": NOW, "until": NOW + hours * HOUR, "ranks": ranks, "down": down, **lists}


def job(name, start, end, ranks, nodes=None):
    end = None if end is None else NOW + end * HOUR
    return {"name": name, "start": NOW + start * HOUR, "end": end, "ranks": ranks, "nodes": nodes}


def rows(chart, width=47):
    """The rows of a chart 40 columns wide (5 minutes of 8 hours are 12), by name."""
    lines = chart.text(width).splitlines()
    body = lines[2 : lines.index("")]
    return {line.split()[0]: line.split()[-1] for line in body}


def test_ranks_that_look_alike_share_a_row():
    chart = Chart(plan(running=[job("A", -1, 4, "0-3,6")], promised=[job("B", 4, 8, "0-3")]))
    assert rows(chart) == {"0-3": "a" * 20 + "b" * 20, "4-5,7": "." * 40, "6": "a" * 20 + "." * 20}


def test_bars_without_an_end_or_that_go_on_are_marked():
    chart = Chart(plan(running=[job("A", 0, None, "0"), job("B", 0, 9, "1"), job("C", 0, 8, "2")]))
    assert rows(chart)["0"] == "a" * 39 + ">"
    assert rows(chart)["1"] == "b" * 39 + ">"
    assert rows(chart)["2"] == "c" * 40


def test_down_reserved_and_not_chosen():
    lists = {"reserved": [job("tuesday", 4, 6, "0-1", 2)], "promised": [job("P", 2, 4, None, 3)]}
    chart = Chart(plan(down="7", **lists))
    shown = rows(chart)
    assert shown["0-1"] == "." * 20 + "#" * 10 + "." * 10
    assert shown["7"] == "x" * 40
    text = chart.text(80)
    assert "\nany 3 " in text
    assert "# reserved (tuesday)" in text
    assert "x down" in text
    assert "a P" in text


def test_times_are_of_the_zone():
    text = Chart(plan(), "Europe/Berlin").text(80)
    assert "12:00" in text.splitlines()[0]
    assert text.splitlines()[0].split()[0] == "now"
    assert "Thu" in Chart(plan(hours=60), "Europe/Berlin").text(80).splitlines()[0]


def test_more_jobs_than_letters():
    many = [job(f"j{i:03}", 0, 1, str(i)) for i in range(100)]
    text = Chart(plan(ranks="0-99", running=many)).text(80)
    assert "a j000" in text
    assert "* more than one" in text


def test_the_picture_is_well_formed_and_names_every_bar():
    lists = {"running": [job("<A&B>", 0, 2, "0-3")], "reserved": [job("tuesday", 4, None, None, 2)]}
    chart = Chart(plan(**lists))
    root = ElementTree.fromstring(chart.svg())
    titles = [node.text for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(text.startswith("<A&B>: running, 2026-11-25 09:46:40 to ") for text in titles)
    assert any("without a known end" in text for text in titles)


entries = st.lists(
    st.builds(
        job,
        st.text("ab<&ƒ", min_size=1, max_size=3),
        st.floats(-2, 10),
        st.one_of(st.none(), st.floats(-1, 12)),
        st.one_of(st.none(), st.sampled_from(["0", "0-3", "2,5", "9"])),
        st.integers(1, 8),
    ),
    max_size=8,
)


@given(entries, entries, entries, st.integers(1, 200))
def test_any_plan_can_be_drawn(running, promised, reserved, width):
    chart = Chart(plan(running=running, promised=promised, reserved=reserved, down="3"))
    lines = chart.text(width).splitlines()
    assert all(len(line) <= max(width, 24) for line in lines[: lines.index("")])
    ElementTree.fromstring(chart.svg())
