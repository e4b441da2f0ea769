"""Idsets: the text form of RFC 22 and flux.idset.IDset."""

import pytest

from flux.idset import IDSET_FLAG_BRACKETS, IDSET_FLAG_RANGE, IDset

NONE = 4294967294

ROUND_TRIP = {
    "": "",
    "[]": "",
    "0": "0",
    "1-3,5-6,42": "1-3,5-6,42",
    "[1-3,5-6,42]": "1-3,5-6,42",
    "1,2": "1-2",
    "7-7": "7",
    "0-1,3": "0-1,3",
    "0-4294967295": "0-4294967295",
}

REJECTED = [
    "01", "1,", ",1", "3-1", "2,1", "1,1", "1-3,2", "-1", "1 ,2", "[1", "1]", "[1],[2]", "a", "1--2", "+1", "all",
    "4294967296", "[", "]", "1\n", " 1", "1-2-3", "[[1]]", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", ROUND_TRIP)
def test_round_trip(text):
    assert IDset(text).encode() == str(IDset(text)) == ROUND_TRIP[text]


@pytest.mark.parametrize("text", REJECTED)
def test_what_is_not_an_idset_is_refused_by_name(text):
    with pytest.raises(ValueError) as info:
        IDset(text)
    assert str(info.value) == f"IDset(): Invalid argument: {text}"


def test_the_greatest_set_costs_no_more_than_a_small_one():
    everything = IDset("0-4294967295")
    assert everything.count() == len(everything) == 4294967296
    assert everything.last() == 4294967295
    assert str(everything - "5") == "0-4,6-4294967295"
    assert everything[4294967295]


def test_made_from_ids_and_from_another():
    a = IDset([7, 1, 2, 2])
    b = IDset(a)
    b.set(9)
    assert (str(a), str(b)) == ("1-2,7", "1-2,7,9")


@pytest.mark.parametrize(
    "arg, error",
    [
        (5, TypeError),
        (["a"], TypeError),
        ([True], TypeError),
        ([-1], ValueError),
        ([1 << 32], ValueError),
    ],
)
def test_other_arguments(arg, error):
    with pytest.raises(error):
        IDset(arg)


def test_mutators_change_the_set_and_return_it():
    s = IDset("0-9")
    assert s.clear(3, 5) is s
    assert s.set(20).set(12, 10) is s
    assert str(s) == "0-2,6-12,20"
    assert str(s.add("4")) == "0-2,4,6-12,20"
    assert str(s.subtract(IDset("0-7"))) == "8-12,20"
    copy = s.copy()
    s.clear(20)
    assert copy.test(20) and not s.test(20)


def test_first_last_next():
    s = IDset("2-3,9")
    assert (s.first(), s.last()) == (2, 9)
    assert [s.next(i) for i in (0, 2, 3, 9)] == [2, 3, 9, NONE]
    assert IDset().first() == IDset().last() == NONE


def test_operators_take_strings_on_the_right():
    s = IDset("0-5")
    assert str(s | "8") == str(s + "8") == "0-5,8"
    assert str(s & "4-9") == "4-5"
    assert str(s - "1-3") == "0,4-5"
    assert str(s.union("7", IDset("9"))) == "0-5,7,9"
    assert str(s.intersect("1-4", "3-9")) == "3-4"
    assert str(s.difference("0", "5")) == "1-4"
    assert str(s) == "0-5"


def test_as_a_container():
    s = IDset("1-2,8")
    assert list(s) == s.expand() == [1, 2, 8]
    assert 8 in s and 3 not in s
    assert [s[0], s[2], s[8]] == [False, True, True]
    assert bool(s) and not IDset()
    with pytest.raises(ValueError):
        s[-1]


def test_comparing_and_hashing():
    assert IDset("1-3") == IDset([1, 2, 3])
    assert IDset("1-3") != IDset("1-2")
    assert IDset("1-3").equal("1,2,3")
    with pytest.raises(TypeError):
        assert IDset("1") == "1"
    with pytest.raises(TypeError):
        hash(IDset("1"))


def test_flags_say_how_it_is_written():
    s = IDset("0-2,5", flags=IDSET_FLAG_BRACKETS | IDSET_FLAG_RANGE)
    assert str(s) == "[0-2,5]"
    assert s.encode(flags=0) == "0,1,2,5"
    assert IDset("5", flags=IDSET_FLAG_BRACKETS).encode() == "5"
    assert repr(IDset("5-6")) == "IDset('5-6')"


@pytest.mark.parametrize("method", ["set", "clear"])
def test_negative_ids_are_called_so(method):
    with pytest.raises(ValueError, match=f"negative index passed to IDset.{method}"):
        getattr(IDset("0-3"), method)(-1)
