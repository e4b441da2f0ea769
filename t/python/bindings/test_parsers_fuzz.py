# SPDX-License-Identifier: LGPL-3.0-or-later
"""Parsers on random text: a result or ValueError, in linear time."""

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

import flux.util
from flux.hostlist import Hostlist
from flux.job.JobID import JobID
from flux_engine.formats import eventlog, fsd, hostlist, idset, jobid, jobspec

MANY = settings(max_examples=100)

PARSERS = {
    "idset": (idset.decode, "0123456789,-[] a"),
    "hostlist": (hostlist.decode, "n01259,-[]x \u00e9"),
    "jobid": (jobid.decode, "\u0192f0x123aZl.- job\U0001f600"),
    "fsd": (fsd.parse, "0123456789.smhdxinfe+-_ \u0663"),
    "jobspec": (jobspec.decode, '{}[]",:0123 atrue\\n'),
    "eventlog": (eventlog.parse, '{}[]":,0123456789 timestampname\n'),
}


@pytest.mark.parametrize("name", PARSERS)
def test_text_near_the_grammar(name):
    parse, alphabet = PARSERS[name]

    @MANY
    @given(st.one_of(st.text(alphabet, max_size=40), st.text(max_size=20)))
    def fuzz(text):
        try:
            parse(text)
        except ValueError:
            pass

    fuzz()


LONG = {
    "idset": ["0-4294967295", ",".join(str(i) for i in range(0, 100000, 2)), "[" * 50000, "9" * 100000, "1," * 50000],
    "hostlist": ["n[0-" + "9" * 18 + "]", "n[" + "0-1048575," * 1000 + "1]", "[" * 50000, "a" * 100000, "1" * 100000,
                 ",".join(["n[0-99999]"] * 100), "n[" + "0" * 100000 + "]"],
    "jobid": ["f" + "z" * 100000, "9" * 100000, "0x" + "f" * 100000, "." * 100000],
    "fsd": ["9" * 100000, "1e" + "9" * 100000, "0x" + "f" * 100000, " " * 100000],
    "jobspec": ["[" * 100000, '{"a":' * 100000, "9" * 100000, '"' * 100000],
    "eventlog": ["[" * 100000 + "\n", "\n" * 50000, '{"a":' * 100000 + "\n"],
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_long_text_costs_time_in_proportion(name):
    """A test that took more than a proportional time would be noticed: pytest would not come back."""
    parse, _ = PARSERS[name]
    for text in LONG[name]:
        try:
            parse(text)
        except ValueError as exc:
            assert len(str(exc)) < 2000, "the error repeats the whole input"


# -- against simple models -------------------------------------------------------

names = st.one_of(
    st.from_regex(r"[a-c]?-?[0-9]{0,4}", fullmatch=True).filter(bool),
    st.text(st.sampled_from("n0129-.x"), min_size=1, max_size=8),
)


@MANY
@given(st.lists(names, max_size=12))
@example(["n0", "n00", "n000", "n1", "n01"])
@example(["n" + "1" * 30, "n" + "1" * 29 + "2"])
@example(["n" + "0" * 30, "n" + "0" * 29 + "1"])
def test_hostlist_round_trip(hosts):
    h = Hostlist(hosts)
    assert list(Hostlist(h.encode())) == list(h) == hosts
    assert sorted(h.copy().sort()) == sorted(hosts)
    assert set(h.copy().uniq()) == set(hosts)


@MANY
@given(st.integers(0, (1 << 64) - 1))
def test_job_ids_round_trip(value):
    id = JobID(value)
    for text in (id.f58, id.f58plain, id.hex, id.dothex, id.dec, id.kvs):
        assert JobID(text) == value


@MANY
@given(st.floats(1e-3, 1e9), st.sampled_from(["ms", "s", "m", "h", "d", ""]))
def test_durations_round_trip(value, suffix):
    seconds = fsd.parse(f"{value!r}{suffix}")
    assert seconds > 0
    written = flux.util.fsd(seconds)
    assert fsd.parse(written) == pytest.approx(seconds, rel=1e-3, abs=1e-3)
