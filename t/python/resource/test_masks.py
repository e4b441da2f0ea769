# SPDX-License-Identifier: LGPL-3.0-or-later
"""Masks and their text; host names as runs. Against sets and lists."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.resource.pool import masks
from flux.resource.pool.hosts import encode_pieces, name_pieces
from flux.resource.pool.inventory import HostNames
from flux.resource.pool.masks import (
    bracketed,
    clip_idset,
    idset_text,
    intervals,
    lowest,
    members,
    parse_idset,
    quote,
    runs,
    take,
    to_mask,
)

sets = st.one_of(
    st.sets(st.integers(0, 20)),
    st.sets(st.integers(0, 400), max_size=60),
    st.sets(st.integers(0, 4000), max_size=200),
)


def mask_of(ids):
    return sum(1 << one for one in ids)


@given(sets)
def test_round_trip(ids):
    mask = mask_of(ids)
    text = idset_text(mask)
    assert text == str(IDset(sorted(ids)).encode())
    assert parse_idset(text) == mask
    assert parse_idset("[" + text + "]") == mask
    assert members(mask) == sorted(ids)
    assert clip_idset(text, 30) == mask & (1 << 30) - 1
    rebuilt = [low + n for low, count in runs(mask) for n in range(count)]
    assert rebuilt == sorted(ids)
    assert bracketed(mask) == (text if len(ids) == 1 else "[" + text + "]")
    if ids:
        assert lowest(mask) == min(ids)
        for count in {1, len(ids) // 2, len(ids)}:
            assert members(take(mask, count)) == sorted(ids)[:count]
        assert masks.mask_of(sorted(ids)) == mask
    for form in (text, IDset(text), sorted(ids), ids, iter(ids)):
        assert to_mask(form) == mask
    assert to_mask(7) == 128


BAD = ["01", "1,", ",1", "3-1", "2,1", "1,1", "1-3,2", "-1", "1 ,2", "[1", "1]", "[1],[2]", "a", "1--2", "+1", "all",
       "1_0", "٣", "4294967296", "9" * 5000, None, 5, ["1"], b"1", "1\n"]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_rejected(text):
    for parse in (parse_idset, intervals, lambda one: clip_idset(one, 8)):
        with pytest.raises(ValueError):
            parse(text)


def test_bounds():
    assert intervals("0-4294967295") == [(0, 4294967295)]
    assert clip_idset("1-4294967295", 4) == 0b1110
    assert clip_idset("4000000000", 4) == 0
    with pytest.raises(ValueError, match="below"):
        parse_idset("1048576")
    assert to_mask([5, 10**12]) == 32
    text = ",".join(str(2 * n) for n in range(5000))
    assert members(parse_idset(text)) == list(range(0, 10000, 2))


def test_quote():
    deep = []
    for _ in range(100000):
        deep = [deep]
    assert len(quote(deep)) < 100
    assert len(quote("x" * 10**6)) < 100
    assert len(quote({n: n for n in range(1000)})) < 200
    assert quote(10**5000) == f"a number of {(10**5000).bit_length()} bits"


# -- host names -------------------------------------------------------------------------------------------

prefixes = st.sampled_from(["n", "node", "a-b", "", "x1y", "gpu"])
names = st.one_of(
    st.builds(
        "{}{}".format,
        prefixes,
        st.sampled_from(["0", "1", "2", "9", "10", "11", "08", "09", "007", "99", "100"]),
    ),
    st.sampled_from(["login", "fat", "r1n0-ib", "n1n", "12345678901234567890123"]),
).filter(bool)


@example(["n0", "n08", "n8", "n9"])
@given(st.lists(names, min_size=1, max_size=12))
def test_host_names(hosts):
    """Any names are returned unchanged, and each is found."""
    ranks = mask_of(range(3, 3 + len(hosts)))
    table = HostNames(ranks, [",".join(hosts)])
    assert [table.name(rank) for rank in members(ranks)] == hosts
    text = table.hostlist(ranks)
    assert list(Hostlist(text)) == hosts
    # Numbers of 19 digits and more stand alone here, and so do those of another width (n0,n00): flux-core's C
    # library writes n[0,00], which is the same list.
    if max(map(len, hosts)) < 20 and not any(re.search("(^|[^0-9])0[0-9]", host) for host in hosts):
        assert text == Hostlist(hosts).encode()
    part = ranks & 0b101010101010
    assert list(Hostlist(table.hostlist(part))) == [hosts[rank - 3] for rank in members(part)]
    for host in hosts:
        assert members(table.find(host)) == [
            3 + n for n, other in enumerate(hosts) if other == host
        ]
    assert table.find("nothing,n500") == 0
    # The same from pieces of several strings.
    again = HostNames(ranks, [hosts[0]] + ([",".join(hosts[1:])] if hosts[1:] else []))
    assert again.hostlist(ranks) == text


@pytest.mark.parametrize(
    "hosts, text",
    [
        (["n9", "n10"], "n[9-10]"),
        (["n09", "n10"], "n[09-10]"),
        (["n009", "n10"], "n[009,10]"),
        (["n10", "n09"], "n[10,09]"),
        (["n1", "n1", "n2"], "n[1,1-2]"),
        (["n3", "n1", "n2"], "n[3,1-2]"),
        (["n0", "n00"], "n[0,00]"),
        (["1", "2", "3"], "[1-3]"),
        (["n099", "n100", "n1000"], "n[099-100,1000]"),
        (["a", "a", "b1"], "a,a,b1"),
    ],
)
def test_encode(hosts, text):
    assert encode_pieces([piece for host in hosts for piece in name_pieces(host)]) == text


number = st.integers(0, 120)
elements = st.one_of(
    names,
    st.builds(
        lambda prefix, low, more, width, suffix: f"{prefix}[{low:0{width}d}-{low + more}]{suffix}",
        st.one_of(prefixes, st.sampled_from(["n0", "n1", "1", "x12345678901234567"])),
        number,
        number,
        st.integers(1, 3),
        st.sampled_from(["", "", "-ib", "0", "n0"]),
    ),
)


@example(["n[0-11]", "n0[8-9]", "n1[0-1]"], ["n[00-11]"])
@example(["n0", "n0", "n1"], ["n[0-1]"])
@given(st.lists(elements, min_size=1, max_size=6), st.lists(elements, max_size=6))
def test_hosts_are_found_as_if_all_were_listed(there, wanted):
    hosts = list(Hostlist(",".join(there)))
    table = HostNames(mask_of(range(2, 2 + len(hosts))), there)
    among = set(Hostlist(",".join(wanted)))
    found = members(table.find(",".join(wanted)))
    assert found == [2 + n for n, host in enumerate(hosts) if host in among]


@pytest.mark.parametrize(
    "text",
    ["n[", "n]", "n[]", "n[1,,2]", "n[2-1]", "n[a]", "n[1-2-3]", "n[1][2]", "a b", "n[1[2]]", "é", "a\n", None, 7, "n[1-9999999]",
     "n[0-1048575],x", "x" * 3 + "[1-2", "n[1-99999999999999999999]", ",".join(["n[0-1048000]", "m[0-1048000]"])],
)  # fmt: skip
def test_bad_hostlist(text):
    with pytest.raises(ValueError):
        name_pieces(text)


def test_too_many_plain_names():
    with pytest.raises(ValueError, match="too many"):
        name_pieces(",".join(["a"] * (1 << 20) + ["b"]))


def test_host_count():
    with pytest.raises(ValueError, match="3 hosts for 2 ranks"):
        HostNames(0b11, ["a[1-3]"])
    for nodelist in ("a", 5, {"a": 1}):
        with pytest.raises(ValueError, match="array"):
            HostNames(0b1, nodelist)
    unnamed = HostNames(0b1011, None)
    assert unnamed.hostlist(0b1011) == "rank[0-1,3]" and not unnamed.named
