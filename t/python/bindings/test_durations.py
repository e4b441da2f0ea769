# SPDX-License-Identifier: LGPL-3.0-or-later
"""Durations (RFC 23) and the small helpers of flux.util."""

import math

import pytest

from flux.util import del_treedict, fsd, parse_fsd, set_treedict

GOOD = {
    "250ms": 0.25, "1.5s": 1.5, "45": 45, "0.5h": 1800, "7m": 420, "1e2s": 100, "0s": 0, "2d": 172800, ".5": 0.5,
    "inf": math.inf, "INF": math.inf, "infinity": math.inf, "Infinity": math.inf, "0x10": 16, "+5": 5, "5.": 5,
}  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_parse(text):
    assert parse_fsd(text) == GOOD[text]


@pytest.mark.parametrize(
    "text",
    [
        "-1",
        "5M",
        "5 m",
        "infs",
        "nan",
        "",
        "s",
        "1h30m",
        " 1",
        "1\n",
        "1e99999",
        "1_0",
        "9" * 1000,
        "\u0663",
    ],
)
def test_refused(text):
    with pytest.raises(ValueError, match="^invalid Flux standard duration$"):
        parse_fsd(text)


def test_written_for_people():
    cases = {
        3597: "59.95m",
        43200: "12h",
        1.02: "1.020s",
        0: "0s",
        12.34: "12.34s",
        90: "1.5m",
        216000: "2.5d",
    }
    for seconds, text in cases.items():
        assert fsd(seconds) == text
    assert fsd(math.inf) == "inf"


def test_set_treedict():
    tree = {"a": {"b": 1}}
    set_treedict(tree, "a.c.d", 2)
    assert tree == {"a": {"b": 1, "c": {"d": 2}}}
    with pytest.raises(TypeError, match="'int' object does not support item assignment"):
        set_treedict(tree, "a.b.x", 1)
    del_treedict(tree, "a.c.d", remove_empty=True)
    assert tree == {"a": {"b": 1}}
    with pytest.raises(KeyError):
        del_treedict(tree, "a.c.d")
