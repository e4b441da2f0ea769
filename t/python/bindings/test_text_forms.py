"""Idsets (RFC 22) and hostlists (RFC 29) as text."""

import pytest

from flux_engine.formats import fsd, hostlist, idset

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

NOT_IDS = [
    "01", "1,", ",1", "3-1", "2,1", "1,1", "1-3,2", "-1", "1 ,2", "[1", "1]", "[1],[2]", "a", "1--2", "+1", "all",
    "4294967296", "[", "]", "1\n", " 1", "1-2-3", "[[1]]", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", ROUND_TRIP)
def test_idset(text):
    ids, canonical = idset.decode(text), ROUND_TRIP[text]
    assert idset.encode(ids) == canonical
    has_several = "," in canonical or "-" in canonical
    assert idset.encode(ids, brackets=True) == (f"[{canonical}]" if has_several else canonical)


@pytest.mark.parametrize("text", NOT_IDS)
def test_what_is_not_an_idset_is_refused(text):
    with pytest.raises(ValueError):
        idset.decode(text)


def test_a_duration_that_no_number_holds_is_refused():
    with pytest.raises(ValueError):
        fsd.parse("1e308d")


def test_the_greatest_set_costs_no_more_than_a_small_one():
    everything = idset.decode("0-4294967295")
    assert idset.count(everything) == 4294967296
    assert idset.encode(idset.difference(everything, [5, 6])) == "0-4,6-4294967295"


DECODE = {
    "": "",
    ",": "",
    "a,,b": "a b",
    "gpu[08-11]": "gpu08 gpu09 gpu10 gpu11",
    "n[007,5,12-13]": "n007 n5 n12 n13",
    "c[3,1-2,2]n": "c3n c1n c2n c2n",
    "a,b[1-2],a": "a b1 b2 a",
    "[098-101]": "098 099 100 101",
    "r1n[0-2]-ib": "r1n0-ib r1n1-ib r1n2-ib",
    "n[3,1]": "n3 n1",
    "vm,vm,vm": "vm vm vm",
}


@pytest.mark.parametrize("text", DECODE)
def test_hostlist(text):
    hosts = DECODE[text].split()
    assert hostlist.decode(text) == hostlist.decode(hostlist.encode(hosts)) == hosts


def test_the_longest_list_has_2_to_the_20_names():
    assert len(hostlist.decode("n[0-1048575]")) == 1 << 20
    with pytest.raises(ValueError):
        hostlist.decode("n[0-1048575],m")
