# SPDX-License-Identifier: LGPL-3.0-or-later
"""flux.constraint.parser: the names that scripts import, and what they get."""

import pytest

from flux.constraint.parser import ConstraintParser, ConstraintSyntaxError


class Requires(ConstraintParser):
    operator_map = {None: "properties", "host": "hostlist"}
    split_values = {"properties": ","}
    combined_terms = {"properties"}


def test_a_subclass_gives_the_terms_a_meaning():
    assert Requires().parse("a,b c") == {"properties": ["a", "b", "c"]}
    assert Requires().parse("a and not host:n[1-2]") == {
        "and": [{"properties": ["a"]}, {"not": [{"hostlist": ["n[1-2]"]}]}]
    }
    assert ConstraintParser().parse("x:1") == {"x": ["1"]}


@pytest.mark.parametrize("text", ["", "  ", "a and", "(a", "a:", "|"])
def test_what_cannot_be_read(text):
    with pytest.raises(ConstraintSyntaxError):
        Requires().parse(text)


@pytest.mark.parametrize(
    "text, error",
    [
        ("", "Unexpected end of input in ''"),
        ("a and", "Unexpected end of input in 'a and'"),
        ("(a)|", "Unexpected end of input in '(a)|'"),
        ("(a", "Unclosed parenthesis in position 0"),
        ("a (b c", "Unclosed parenthesis in position 2"),
        ("((", "Unclosed parenthesis in position 1"),
        ("(a) (b", "Unclosed parenthesis in position 4"),
        ("a and)", "Invalid token ')' at position 5"),
        ("()", "Invalid token ')' at position 1"),
    ],
)
def test_the_error_says_where(text, error):
    with pytest.raises(ConstraintSyntaxError) as info:
        Requires().parse(text)
    assert str(info.value) == error


def test_without_a_map_every_term_needs_an_operator():
    with pytest.raises(ConstraintSyntaxError, match='Missing required operator in "a"'):
        ConstraintParser().parse("a")
