# SPDX-License-Identifier: LGPL-3.0-or-later
"""Hostlists: the text form of RFC 29 and flux.hostlist.Hostlist."""

import pytest

from flux.hostlist import Hostlist
from flux.idset import IDset

DECODE = {
    "": "",
    ",": "",
    "a,,b": "a b",
    "gpu[08-11]": "gpu08 gpu09 gpu10 gpu11",
    "n[007,5,12-13]": "n007 n005 n012 n013",
    "c[3,1-2,2]n": "c3n c1n c2n c2n",
    "a,b[1-2],a": "a b1 b2 a",
    "[098-101]": "098 099 100 101",
    "r1n[0-2]-ib": "r1n0-ib r1n1-ib r1n2-ib",
    "n[3,1]": "n3 n1",
    "vm,vm,vm": "vm vm vm",
}

ENCODE = {
    "n9 n10": "n[9-10]",
    "n09 n10": "n[09-10]",
    "n009 n10": "n009,n10",
    "n10 n09": "n10,n09",
    "n1 n1 n2": "n[1,1-2]",
    "n3 n1 n2": "n[3,1-2]",
    "n0 n00": "n0,n00",
    "1 2 3": "[1-3]",
    "n099 n100 n1000": "n[099-100,1000]",
    "a a b1": "a,a,b1",
}

REJECTED = [
    "n[", "n]", "n[]", "n[1,,2]", "n[2-1]", "n[a]", "n[1-2-3]", "n[[1]]", "a b", "a\t", "n\u00e9", "n[1]\n",
    "n[0-1048576]", "n[0-99999999999999999]", "n[1-]", "n[-1]", "n[,1]",
]  # fmt: skip


@pytest.mark.parametrize("text", DECODE)
def test_decode(text):
    hosts = DECODE[text].split()
    assert list(Hostlist(text)) == hosts
    assert list(Hostlist(Hostlist(hosts).encode())) == hosts


@pytest.mark.parametrize("names", ENCODE)
def test_encode(names):
    assert str(Hostlist(names.split())) == ENCODE[names]
    assert list(Hostlist(ENCODE[names])) == names.split()


@pytest.mark.parametrize("text", REJECTED)
def test_what_is_not_a_hostlist_is_refused(text):
    with pytest.raises(ValueError, match="Invalid hostlist"):
        Hostlist(text)


def test_the_longest_list_has_2_to_the_20_names():
    assert len(Hostlist("n[0-1048575]")) == 1 << 20
    with pytest.raises(ValueError):
        Hostlist("n[0-1048575],m")


def test_indexing():
    h = Hostlist("n[0-9]")
    assert (h[0], h[-1]) == ("n0", "n9")
    assert str(h[2:4]) == "n[2-3]"
    assert str(h[IDset("0,5-6")]) == "n[0,5-6]"
    for index in (10, IDset("9-10")):
        with pytest.raises(IndexError):
            h[index]


def test_append_and_delete_tell_how_many():
    h = Hostlist("a1")
    assert h.append("a[2-3],b") == 3
    assert h.append(Hostlist("a1"), ["c"]) == 2
    assert str(h) == "a[1-3],b,a1,c"
    assert h.delete("a[1-2],zz") == 2
    assert str(h) == "a3,b,a1,c"


def test_find_and_index():
    h = Hostlist("vm,n[1-3],vm")
    assert h.find("vm") == 0
    assert h.index("n[2-3]") == [2, 3]
    assert h.index("n3,zz", ignore_nomatch=True) == [3]
    assert "n2" in h and "n4" not in h
    for call in (lambda: h.find("n4"), lambda: h.index("n1,n4")):
        with pytest.raises(FileNotFoundError):
            call()
    with pytest.raises(FileNotFoundError) as info:
        h.index("x[1-2]")
    assert str(info.value) == "hosts 'x[1-2]' not found" and info.value.errno is None


def test_positions_follow_changes():
    h = Hostlist("a,b,c")
    assert h.find("c") == 2
    h.delete("a")
    assert h.find("c") == 1
    h.append("a")
    assert h.find("a") == 2


def test_sort_and_uniq():
    h = Hostlist("n10,n9,a,n9")
    assert str(h.copy().sort()) == "a,n[9,9-10]"
    assert str(h.uniq()) == "a,n[9-10]"


def test_copies_and_comparison():
    h = Hostlist("a,b")
    copy = h.copy()
    copy.append("c")
    assert h.expand() == ["a", "b"] and h.count() == 2
    assert list(h) == ["a", "b"] != list(copy)
    assert h == h and h != Hostlist(["a", "b"])
    with pytest.raises(TypeError):
        Hostlist([1])


def test_a_name_with_two_ranges():
    """The first one counts, the second is part of the name."""
    assert list(Hostlist("a[0-1][2-3],b")) == ["a0[2-3]", "a1[2-3]", "b"]
