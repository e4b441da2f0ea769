# SPDX-License-Identifier: LGPL-3.0-or-later
"""Job ids: the encodings of RFC 19 and flux.job.JobID."""

import json
import os
import subprocess
import sys

import pytest

from flux.job import JobID
from flux.job.JobID import id_encode, id_parse

TABLE = [
    (0, "\u01921", "0x0", "0000.0000.0000.0000"),
    (57, "\u0192z", "0x39", "0000.0000.0000.0039"),
    (58, "\u019221", "0x3a", "0000.0000.0000.003a"),
    (16777216, "\u01922UzHM", "0x1000000", "0000.0000.0100.0000"),
    (25165824000, "\u0192fLpRiF", "0x5dc000000", "0000.0005.dc00.0000"),
    (1449551462403089, "\u0192CKWG1yesi", "0x5265c00000c11", "0005.265c.0000.0c11"),
    (2071261215726634, "\u0192HB5X9w7Rs", "0x75bcd15001c2a", "0007.5bcd.1500.1c2a"),
    (6731191091817518, "\u0192uZZybuNNy", "0x17e9fb8df16c2e", "0017.e9fb.8df1.6c2e"),
    (9007199254740992, "\u01922DLNrMSKuh", "0x20000000000000", "0020.0000.0000.0000"),
    (18446744073709551615, "\u0192jpXCZedGfVQ", "0xffffffffffffffff", "ffff.ffff.ffff.ffff"),
]

REJECTED = [
    "\u0192", "f", "\u01920", "\u0192l", "0x", "0xg", "0017.e9fb", "18446744073709551616", "", "x y", "-1", "1.5",
    "\u0192jpXCZedGfVR", "glass-snow-mister--academy-academy-academy", "\U0001f600", "0x10000000000000000",
    "job.0000", "0x 1", "\N{ARABIC-INDIC DIGIT ONE}", "f" + "1" * 100,
]  # fmt: skip


@pytest.mark.parametrize("value, f58, hexa, dothex", TABLE)
def test_every_encoding_both_ways(value, f58, hexa, dothex):
    plain = "f" + f58[1:]
    id = JobID(value)
    assert id == value and isinstance(id, int)
    assert (id.f58plain, id.hex, id.dothex, id.dec) == (plain, hexa, dothex, str(value))
    assert id.kvs == "job." + dothex
    assert id.f58 in (f58, plain) and str(id) == id.f58
    for text in (f58, plain, hexa, dothex, str(value), "job." + dothex, f" {f58}\n"):
        assert JobID(text) == id_parse(text) == value
    assert JobID(json.loads(json.dumps(id))) == value


@pytest.mark.parametrize("text", REJECTED)
def test_what_is_not_a_job_id_is_a_value_error(text):
    with pytest.raises(ValueError):
        JobID(text)


def test_forms_with_external_tables_are_named():
    for name in ("words", "emoji"):
        with pytest.raises(ValueError, match=f"{name} encoding"):
            getattr(JobID(1), name)
        with pytest.raises(ValueError, match=f"{name} encoding"):
            id_encode(1, name)
    with pytest.raises(ValueError, match="unknown job id encoding 'nope'"):
        JobID(1).encode("nope")


def test_numbers_out_of_range_and_other_types():
    for value in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            JobID(value)
    with pytest.raises(TypeError):
        JobID(1.5)


def test_arithmetic_gives_plain_ints_and_orig_is_what_it_was_made_from():
    id = JobID("f1")
    assert type(id + 1) is int
    assert (id.orig, JobID(58).orig) == ("f1", "58")
    assert repr(JobID("f21")) == "JobID(58)"


@pytest.mark.parametrize(
    "environ, first",
    [
        ({"LC_ALL": "C"}, "f"),
        ({"LC_ALL": "C.UTF-8"}, "\u0192"),
        ({"LC_ALL": "C.UTF-8", "FLUX_F58_FORCE_ASCII": "1"}, "f"),
    ],
)
def test_f58_follows_the_locale(environ, first):
    env = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG"))}
    code = "from flux.job.JobID import JobID; import sys; sys.stdout.buffer.write(JobID(58).f58.encode())"
    out = subprocess.run(
        [sys.executable, "-c", code], env={**env, **environ}, stdout=subprocess.PIPE, check=True
    )
    assert out.stdout.decode() == first + "21"
